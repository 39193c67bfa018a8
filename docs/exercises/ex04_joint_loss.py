"""Exercise 4: the losses of the auxiliary phase. 30 minutes.

Tensors: logits and old_logits (B, 15) are log-probabilities; values, aux_values, returns (B,).
Then: python -m pytest docs/exercises/ex04_joint_loss.py
"""


def kl_divergence(old_logits, logits):
    """KL[pi_old, pi], the mean over the states."""
    raise NotImplementedError


def auxiliary_loss(logits, values, aux_values, old_logits, returns, beta_clone):
    """L^joint + L^value: what the auxiliary phase minimizes."""
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks


def example():
    import torch

    torch.manual_seed(0)
    logits, old_logits = torch.randn(2, 6, 15).log_softmax(-1)
    return logits, *torch.randn(2, 6), old_logits, torch.randn(6)


def test_kl_of_equal_policies():
    logits = example()[0]
    assert abs(kl_divergence(logits, logits)) < 1e-6, "a policy does not differ from itself"


def test_kl():
    import torch

    logits, _, _, old_logits, _ = example()
    ours = kl_divergence(old_logits, logits)
    p, q = (torch.distributions.Categorical(logits=x) for x in (old_logits, logits))
    turned = torch.distributions.kl_divergence(q, p).mean()
    assert not torch.isclose(ours, turned), "that is KL[pi, pi_old]: weigh by the OLD probabilities"
    total = torch.distributions.kl_divergence(p, q).sum()
    assert not torch.isclose(ours, total), "the mean over the states, not their sum"
    assert not torch.isclose(15 * ours, total / 6), "sum over actions, then mean over states"
    assert torch.isclose(ours, total / 6), "E[sum_a pi_old (log pi_old - log pi)]"


def test_loss():
    import torch

    logits, values, aux_values, old_logits, returns = example()
    ours = auxiliary_loss(logits, values, aux_values, old_logits, returns, 0.0)
    squares = ((values - returns) ** 2).mean() + ((aux_values - returns) ** 2).mean()
    assert not torch.isclose(ours, squares), "both value losses have a factor 1/2"
    half = 0.5 * ((aux_values - returns) ** 2).mean()
    assert not torch.isclose(ours, half), "L^value is trained in the auxiliary phase, too"
    assert torch.isclose(ours, squares / 2), "with beta_clone = 0, the two value losses remain"
    more = auxiliary_loss(logits, values, aux_values, old_logits, returns, 2.0) - ours
    assert torch.isclose(more, 2 * kl_divergence(old_logits, logits)), "beta_clone weighs the KL"
