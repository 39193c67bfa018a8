"""Exercise 3: what must it be? Predict numbers before you run anything. 15 minutes.

Write the functions; then: python -m pytest docs/exercises/03_numbers.py
"""

from numbers import Real


def first_ratio():
    """The probability ratio in the very first minibatch of an iteration."""
    raise NotImplementedError


def first_entropy():
    """The entropy, in nats, of a policy that finds all of Procgen's 15 actions equally likely."""
    raise NotImplementedError


def first_kl():
    """KL[pi_old, pi] in the first minibatch of an auxiliary phase."""
    raise NotImplementedError


def gradient_steps(num_envs, num_steps, total_timesteps, num_minibatches, update_epochs):
    """Gradient steps of a whole run of PPO. Rollouts are whole: the last one may go over."""
    raise NotImplementedError


def auxiliary_steps(num_envs, n_pi, aux_minibatch_rollouts, e_aux):
    """Gradient steps of one auxiliary phase.

    n_pi rollouts are stored, with one trajectory of each environment. A minibatch has
    aux_minibatch_rollouts trajectories (the last one of an epoch maybe fewer), and every one of the
    e_aux epochs visits all trajectories.
    """
    raise NotImplementedError


def buffer_bytes(num_envs, num_steps, n_pi):
    """Bytes of the auxiliary phase's observations, 64 x 64 pixels in 3 colours."""
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks

CASES = {  # function: a hint, and what it must return for which arguments
    "first_ratio": ("no gradient step has been taken since the rollout", {(): 1}),
    "first_entropy": ("-sum of p ln p with p = 1/15; nats, not bits", {(): 2.70805}),
    "first_kl": ("the old policy IS the policy at that moment", {(): 0}),
    "gradient_steps": (
        "how many iterations are there, rounded up? In each, every epoch visits every minibatch",
        {
            (64, 256, 16384 * 10, 8, 3): 240,
            (64, 256, 16384 * 10 + 1, 8, 3): 264,
            (3, 5, 31, 4, 2): 24,
        },
    ),
    "auxiliary_steps": (
        "count the trajectories, not the rollouts; and the last minibatch of EACH epoch counts",
        {(64, 32, 4, 6): 3072, (3, 3, 4, 1): 3, (3, 3, 4, 2): 6, (3, 4, 4, 1): 3},
    ),
    "buffer_bytes": (
        "one byte for each colour of each pixel: they are stored before the division by 255",
        {(64, 256, 32): 6_442_450_944, (3, 5, 2): 368_640},
    ),
}


def check(name):
    hint, cases = CASES[name]
    for arguments, wanted in cases.items():
        ours = globals()[name](*arguments)
        assert ours is not None, f"{name} returns nothing: is `return` missing?"
        number = isinstance(ours, Real) or getattr(ours, "shape", None) == ()
        assert number, f"{name}: return one number, not {ours!r}"
        right = abs(ours - wanted) < 0.005  # 2.71 is good enough
        assert right, f"{name}{arguments} is not {ours}: {hint}"


def test_first_ratio():
    check("first_ratio")


def test_first_entropy():
    check("first_entropy")


def test_first_kl():
    check("first_kl")


def test_gradient_steps():
    check("gradient_steps")


def test_auxiliary_steps():
    check("auxiliary_steps")


def test_buffer_bytes():
    check("buffer_bytes")
