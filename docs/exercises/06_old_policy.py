"""Exercise 6: the old policy has moved into the loop. 15 minutes.

In `moved_loop`, one line of the auxiliary phase stands in the wrong place: pi_old is computed anew
in each epoch. The program runs, and logs something. What? First replace each None by a prediction,
then write the right loop; then: python -m pytest docs/exercises/06_old_policy.py

The checks run both loops on a small network: 3 hidden units, 6 epochs of 8 minibatches, and the
policy and the auxiliary value want different features.
"""

import functools
from unittest.mock import patch

import torch
from torch import nn

import ppg_procgen


def moved_loop(agent, optimizer, buffer, args):
    """The loop with the mistake. Returns what it logs in each gradient step. Leave it as it is."""
    metrics = []
    for _ in range(args.e_aux):
        buffer["old_logits"] = ppg_procgen.old_policy_logits(agent, buffer, args)
        metrics += ppg_procgen.auxiliary_epoch(agent, optimizer, buffer, args)
    return metrics


# kl_loss in the FIRST minibatch of each epoch, from epoch to epoch: "zero", "grows" or "falls"
FIRST_KL = None

# In what follows, "equal" means up to a tenth.

# KL[policy before the phase, policy after it], compared with the right loop: "less", "equal" or
# "more"
DISTANCE = None

# aux_value_loss in the last epoch, compared with the right loop: "lower", "equal" or "higher"
AUX_VALUE_LOSS = None

# The logged losses of the last epoch that look WORSE than with the right loop, that is higher, and
# so would warn you: "neither", "kl_loss", "aux_value_loss" or "both"
WARNING = None


def right_loop(agent, optimizer, buffer, args):
    """As moved_loop, without the mistake."""
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks

OPTIONS = {
    "FIRST_KL": ("zero", "grows", "falls"),
    "DISTANCE": ("less", "equal", "more"),
    "AUX_VALUE_LOSS": ("lower", "equal", "higher"),
    "WARNING": ("neither", "kl_loss", "aux_value_loss", "both"),
}
HINTS = {
    "FIRST_KL": "compare the policy with itself, at the moment when pi_old has just been computed",
    "DISTANCE": "each epoch is held to where the one before it ended, none to the phase's start",
    "AUX_VALUE_LOSS": "what is held less may change more, here the features of the value",
    "WARNING": "kl_loss is small, since pi_old follows; and what did you say of aux_value_loss?",
}


class SmallAgent(ppg_procgen.Agent):
    """PPG's Agent, but for 8 numbers in place of a picture, 3 hidden units and 5 actions."""

    def __init__(self):
        nn.Module.__init__(self)
        self.arch = "dual"
        self.policy_encoder = nn.Sequential(nn.Linear(8, 3), nn.Tanh())
        self.value_encoder = nn.Sequential(nn.Linear(8, 3), nn.Tanh())
        self.policy_head, self.value_head = nn.Linear(3, 5), nn.Linear(3, 1)
        self.aux_value_head = nn.Linear(3, 1)
        self.policy_head.weight.data *= 10  # a policy that has learned something


def logged(loop, seed, hold=False):
    """A phase: the two losses (2, steps) that it logs, and how far the policy has moved.

    With `hold`, pi_old remains what it was before the phase, wherever the loop computes it.
    """
    torch.manual_seed(seed)
    agent, obs = SmallAgent(), torch.randn(32, 8, 8)
    buffer = {"obs": obs, "returns": (obs[..., 0] * obs[..., 1]).sign() + obs[..., 2]}
    args = ppg_procgen.Args(e_aux=6, aux_minibatch_rollouts=4)
    optimizer = torch.optim.Adam(agent.parameters(), lr=0.02)
    compute = ppg_procgen.old_policy_logits
    before = compute(agent, buffer, args)
    choice = {"return_value": before} if hold else {"side_effect": compute}
    with patch.object(ppg_procgen, "old_policy_logits", **choice):
        metrics = loop(agent, optimizer, buffer, args)
    assert metrics is not None, f"{loop.__name__} returns nothing: is `return` missing?"
    distance = ppg_procgen.kl_divergence(before, compute(agent, buffer, args))
    names = "kl_loss", "aux_value_loss"
    return torch.tensor([[float(step[name]) for step in metrics] for name in names]), distance


def compared(moved, right, words):
    """The first word if `moved` is lower by more than a tenth, the last if higher by more."""
    ratio = float(moved / right)
    return words[(ratio > 0.9) + (ratio > 1.1)]


@functools.cache
def measured():
    """The answers, as means over three runs of each loop."""
    runs = [[logged(moved_loop, seed, hold) for seed in range(3)] for hold in (False, True)]
    moved, right = (torch.stack([losses for losses, _ in run]).mean(0) for run in runs)
    distances = [sum(distance for _, distance in run) / 3 for run in runs]
    kl, aux = zip(moved[:, -8:].mean(1), right[:, -8:].mean(1), strict=True)
    first_kl = moved[0, ::8]
    grows = "grows" if first_kl[-1] > first_kl[1] else "falls"
    warns = [compared(*pair, [False, False, True]) for pair in (kl, aux)]
    names = {(True, False): "kl_loss", (False, True): "aux_value_loss", (True, True): "both"}
    return {
        "FIRST_KL": "zero" if first_kl.abs().max() < 1e-6 else grows,
        "DISTANCE": compared(*distances, OPTIONS["DISTANCE"]),
        "AUX_VALUE_LOSS": compared(*aux, OPTIONS["AUX_VALUE_LOSS"]),
        "WARNING": names.get(tuple(warns), "neither"),
    }


def check(name):
    answer = globals()[name]
    if answer is None:
        raise NotImplementedError(f"predict {name}")
    assert answer in OPTIONS[name], f"{name} is one of {OPTIONS[name]}"
    right = answer == measured()[name]  # pytest would print both sides
    assert right, f"{name}, measured, is not {answer!r}: {HINTS[name]}"


def test_first_kl():
    check("FIRST_KL")


def test_distance():
    check("DISTANCE")


def test_aux_value_loss():
    check("AUX_VALUE_LOSS")


def test_warning():
    check("WARNING")


def test_right_loop():
    ours = logged(right_loop, 0)[0]
    right, moved = (logged(moved_loop, 0, hold)[0] for hold in (True, False))
    assert ours.shape == right.shape, "return the metrics of all gradient steps of all epochs"
    # In the first step, the gradient of the KL is nothing but rounding, which Adam amplifies.
    still_moves, equal = (torch.allclose(ours, x, rtol=1e-2, atol=2e-3) for x in (moved, right))
    assert not still_moves, "pi_old still moves"
    assert equal, "compute pi_old once, before the first epoch, and change nothing else"
