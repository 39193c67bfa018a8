"""Exercise 3: what must it be? Predict numbers before you run anything. 15 minutes.

Write the functions; then: python -m pytest docs/exercises/ex03_numbers.py
"""


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
    """Gradient steps of one auxiliary phase. A last, smaller minibatch counts too."""
    raise NotImplementedError


def buffer_bytes(num_envs, num_steps, n_pi):
    """Bytes of the auxiliary phase's observations, 64 x 64 pixels in 3 colours."""
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks


def test_first_ratio():
    assert first_ratio() == 1, "no gradient step has been taken since the rollout"


def test_first_entropy():
    assert abs(first_entropy() - 2.70805) < 1e-4, "-sum of p ln p with p = 1/15; nats, not bits"


def test_first_kl():
    assert first_kl() == 0, "the old policy IS the policy at that moment"


def test_gradient_steps():
    hint = "iterations (rounded up) x epochs x minibatches"
    assert gradient_steps(64, 256, 16384 * 10, 8, 3) == 240, hint
    assert gradient_steps(64, 256, 16384 * 10 + 1, 8, 3) == 264, hint


def test_auxiliary_steps():
    hint = "a minibatch has whole trajectories: n_pi x num_envs of them, each once per epoch"
    assert auxiliary_steps(64, 32, 4, 6) == 3072, hint
    assert auxiliary_steps(3, 3, 4, 1) == 3, hint


def test_buffer_bytes():
    hint = "one byte for each colour of each pixel: they are stored before the division by 255"
    assert buffer_bytes(64, 256, 32) == 6_442_450_944, hint
