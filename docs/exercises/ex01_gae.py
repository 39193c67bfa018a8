"""Exercise 1: generalized advantage estimation, by hand. 20 minutes.

Write the function; then: python -m pytest docs/exercises/ex01_gae.py

  delta_t = r_t + gamma V(s_{t+1}) - V(s_t)
  A_t     = delta_t + gamma lambda A_{t+1}

Where an episode ends after step t, there is no s_{t+1} of it: neither its value nor its advantage
counts. `dones[t]` is 1 where the observation of step t is the FIRST of an episode.
"""


def gae(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    """Lists of T numbers, and the value and done of step T -> list of T advantages."""
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks

REWARDS, VALUES = [1.0, 0.0, 2.0], [0.5, 1.0, 0.25]


def close(ours, wanted, hint):
    assert len(ours) == len(wanted), "return one advantage for each step"
    assert all(abs(a - b) < 1e-9 for a, b in zip(ours, wanted, strict=True)), hint


def test_one_step():
    """One step: 1 + 0.5 * 4 - 0.5."""
    close(gae([1.0], [0.5], [0], 4.0, 0, 0.5, 0.9), [2.5], "delta = r + gamma V(next) - V")


def test_end_of_an_episode():
    """The episode ends with the step: nothing of the next one counts."""
    close(gae([1.0], [0.5], [0], 4.0, 1, 0.5, 0.9), [0.5], "next_done is 1: V(next) must not count")


def test_three_steps():
    wanted = [1.0264375, 0.05875, 2.075]
    hint = "go backwards in time, and multiply the later advantage by gamma * lambda, not by gamma"
    close(gae(REWARDS, VALUES, [0, 0, 0], 0.65, 0, 0.5, 0.9), wanted, hint)


def test_end_in_the_middle():
    """Step 2 starts an episode, so step 1 is the last of one."""
    wanted = [0.55, -1.0, 2.075]
    hint = "dones[t + 1] tells whether step t was the last of its episode, dones[t] does not"
    close(gae(REWARDS, VALUES, [0, 0, 1], 0.65, 0, 0.5, 0.9), wanted, hint)
