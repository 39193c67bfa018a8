"""Exercise 4: the losses of the auxiliary phase. 30 minutes.

Tensors: logits and old_logits (B, 15) are log-probabilities; values, aux_values, returns (B,). Both
functions return one number, a tensor without dimensions, whose gradient is used.
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


def example():
    """logits, values, aux_values, old_logits and returns of 6 states."""
    torch.manual_seed(0)
    logits, old_logits = torch.randn(2, 6, 15).log_softmax(-1)
    return logits, *torch.randn(2, 6), old_logits, torch.randn(6)


def equal(ours, other):
    return torch.allclose(ours, other.to(ours), atol=1e-6)


def number(ours, what):
    assert ours is not None, f"{what} returns nothing: is `return` missing?"
    is_number = isinstance(ours, torch.Tensor) and ours.dim() == 0
    assert is_number, f"{what}: return one number, the mean over the states, as a tensor"
    return ours


def called(function, *inputs):
    """What a function returns for copies of the inputs, which it must not change."""
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    ours = number(function(*copies), function.__name__)
    pairs = [(x, y) for x, y in zip(copies, inputs, strict=True) if isinstance(x, torch.Tensor)]
    kept = all(torch.equal(x, y) for x, y in pairs)
    assert kept, f"{function.__name__} changes a tensor that it is given (-= and the like): do not"
    return ours


def check(ours, right, *mistakes):
    """Fail with the hints of the mistakes that lead to our number, if any does."""
    likely = [words for wrong, words in mistakes if equal(ours, wrong)]
    numbers = f"got {float(ours):.4f}, wanted {float(right):.4f}: "
    fits = equal(ours, right)
    assert fits, numbers + ("; or: ".join(likely) or "no mistake that this check knows")


def test_kl_of_equal_policies():
    logits = example()[0]
    ours = called(kl_divergence, logits, logits)
    fits = equal(ours, torch.zeros(()))
    nan = bool(ours.isnan())
    assert not nan, "NaN: a logarithm of what is a logarithm already? F.kl_div has log_target=True"
    assert fits, "a policy does not differ from itself: 0"


def test_kl():
    logits, _, _, old_logits, _ = example()
    p, q = (torch.distributions.Categorical(logits=x) for x in (old_logits, logits))
    right = torch.distributions.kl_divergence(p, q).mean()
    turned = torch.distributions.kl_divergence(q, p).mean()
    weights = "that is KL[pi, pi_old]: weigh by the OLD probabilities"
    logratio = old_logits - logits
    check(
        called(kl_divergence, old_logits, logits),
        right,
        (turned, weights),
        (-turned, weights),
        (-right, "negative: the logs are the wrong way round"),
        (6 * right, "the mean over the states, not their sum"),
        (right / 15, "sum over actions, then mean over states"),
        ((old_logits * logratio).sum(-1).mean(), "exp of the logits gives the probabilities"),
        (logratio.sum(-1).mean(), "weigh each action by its old probability"),
        ((p.probs * logratio.abs()).sum(-1).mean(), "no absolute value: terms may be negative"),
    )


def test_loss():
    logits, values, aux_values, old_logits, returns = inputs = example()
    ours = called(auxiliary_loss, *inputs, 0.0)
    nan = bool(ours.isnan())
    assert not nan, "NaN: repair kl_divergence first"
    L_aux, L_value = (0.5 * ((x - returns) ** 2).mean() for x in (aux_values, values))
    crossed = [0.5 * ((x[:, None] - returns) ** 2).mean() for x in (aux_values, values)]
    pair = old_logits, logits
    kl, turned = called(kl_divergence, *pair), called(kl_divergence, *reversed(pair))
    sums = "the value losses are means over the states, not sums"
    shape = "values (B, 1) minus returns (B,) are (B, B): leave both as they are"
    check(
        ours,
        L_aux + L_value,
        (2 * (L_aux + L_value), "both value losses have a factor 1/2"),
        (2 * L_aux + L_value, "L^aux has a factor 1/2, too"),
        (L_aux + 2 * L_value, "L^value has a factor 1/2, too"),
        (L_aux, "L^value is trained in the auxiliary phase, too"),
        (L_value, "L^aux is missing"),
        (L_aux - L_value, "L^value is added"),
        (L_value - L_aux, "L^aux is added"),
        (6 * (L_aux + L_value), sums),
        (12 * (L_aux + L_value), sums),
        (6 * L_aux + L_value, sums),
        (L_aux + 6 * L_value, sums),
        (crossed[0] + L_value, shape),
        (L_aux + crossed[1], shape),
        (sum(crossed), shape),
        (L_aux + L_value + kl, "beta_clone weighs the KL"),
    )
    difference = called(auxiliary_loss, *inputs, 2.0) - ours
    check(
        difference,
        2 * kl,
        (kl, "beta_clone weighs the KL"),
        (0 * kl, "beta_clone weighs the KL, which is missing or has another weight"),
        (-2 * kl, "the KL is a penalty: add it"),
        (2 * turned, "kl_divergence takes the old logits first"),
    )


def test_gradients():
    """A loss is minimized by its gradients: they must reach what the network says."""
    inputs = [x.requires_grad_() for x in example()]
    with torch.no_grad():
        called(auxiliary_loss, *inputs, 2.0)
    loss = number(auxiliary_loss(*inputs, 2.0), "auxiliary_loss")
    if loss.requires_grad:
        loss.backward()
    logits, values, aux_values, old_logits, returns = (x.detach() for x in inputs)
    normalized = 2 * (logits.exp() - old_logits.exp())  # if the logits are normalized once more
    right = {  # of 2 KL + L^aux + L^value
        "logits": [-2 * old_logits.exp(), normalized],
        "values": [values - returns],
        "aux_values": [aux_values - returns],
    }
    for (name, wanted), x in zip(right.items(), inputs, strict=False):
        reached = x.grad is not None and bool(x.grad.any())
        assert reached, f"no gradient reaches {name}: no .item(), .detach(), torch.no_grad()"
        whole = any(equal(len(returns) * x.grad, gradient) for gradient in wanted)
        assert whole, f"the gradient for {name} is not that of the loss: is a part of it detached?"
