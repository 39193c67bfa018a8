"""Exercise 4: the losses of the auxiliary phase. 30 minutes.

Tensors: logits and old_logits (B, 15) are log-probabilities; values, aux_values, returns (B,).
Then: python -m pytest docs/exercises/04_joint_loss.py
"""

import torch


def kl_divergence(old_logits, logits):
    """KL[pi_old, pi], the mean over the states."""
    raise NotImplementedError


def auxiliary_loss(logits, values, aux_values, old_logits, returns, beta_clone):
    """L^joint + L^value: what the auxiliary phase minimizes."""
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks


def __tracebackhide__(error):
    """Of a failed check, pytest prints the message and not the code, which has the answers."""
    return error.errisinstance((AssertionError, NotImplementedError))


def example():
    """logits, values, aux_values, old_logits and returns of 6 states."""
    torch.manual_seed(0)
    logits, old_logits = torch.randn(2, 6, 15).log_softmax(-1)
    return logits, *torch.randn(2, 6), old_logits, torch.randn(6)


def equal(ours, other):
    return torch.allclose(ours, other.to(ours), atol=1e-6)


def number(ours):
    is_number = isinstance(ours, torch.Tensor) and ours.dim() == 0
    assert is_number, "return one number, the mean over the states, as a tensor"
    return ours


def check(ours, right, hint, *mistakes):
    """Fail with the hint of the mistake that leads to our number, or else with `hint`."""
    number(ours)
    hint = next((words for wrong, words in mistakes if equal(ours, wrong)), hint)
    fits = equal(ours, right)
    assert fits, hint


def test_kl_of_equal_policies():
    logits = example()[0]
    hint = "a policy does not differ from itself"
    check(kl_divergence(logits, logits), torch.zeros(()), hint)


def test_kl():
    logits, _, _, old_logits, _ = example()
    p, q = (torch.distributions.Categorical(logits=x) for x in (old_logits, logits))
    right = torch.distributions.kl_divergence(p, q).mean()
    turned = torch.distributions.kl_divergence(q, p).mean()
    weights = "that is KL[pi, pi_old]: weigh by the OLD probabilities"
    check(
        kl_divergence(old_logits, logits),
        right,
        "E[sum_a pi_old (log pi_old - log pi)]",
        (turned, weights),
        (-turned, weights),
        (-right, "negative: the logs are the wrong way round"),
        (6 * right, "the mean over the states, not their sum"),
        (right / 15, "sum over actions, then mean over states"),
    )


def test_loss():
    logits, values, aux_values, old_logits, returns = example()
    ours = number(auxiliary_loss(logits, values, aux_values, old_logits, returns, 0.0))
    aux, value = (((x - returns) ** 2).mean() for x in (aux_values, values))
    pair = old_logits, logits
    kl, turned = number(kl_divergence(*pair)), number(kl_divergence(*reversed(pair)))
    right, mean = (aux + value) / 2, "the value losses are means over the states, not sums"
    check(
        ours,
        right,
        "with beta_clone = 0, the two value losses remain",
        (aux + value, "both value losses have a factor 1/2"),
        (aux + value / 2, "L^aux has a factor 1/2, too"),
        (aux / 2 + value, "L^value has a factor 1/2, too"),
        (aux / 2, "L^value is trained in the auxiliary phase, too"),
        (value / 2, "L^aux is missing"),
        (6 * right, mean),
        (12 * right, mean),
        (right + kl, "beta_clone weighs the KL"),
    )
    check(
        auxiliary_loss(logits, values, aux_values, old_logits, returns, 2.0) - ours,
        2 * kl,
        "beta_clone weighs the KL",
        (0 * kl, "the KL is missing"),
        (-2 * kl, "the KL is a penalty: add it"),
        (2 * turned, "kl_divergence takes the old logits first"),
    )


def test_gradients():
    """A loss is minimized by its gradients: they must reach what the network says."""
    inputs = [x.requires_grad_() for x in example()]
    loss = number(auxiliary_loss(*inputs, 2.0))
    if loss.requires_grad:
        loss.backward()
    for name, x in zip(("logits", "values", "aux_values"), inputs, strict=False):
        reached = x.grad is not None and bool(x.grad.any())
        assert reached, f"no gradient reaches {name}: no .item(), .detach(), torch.no_grad()"
