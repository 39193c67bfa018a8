"""Exercise 1: generalized advantage estimation, by hand. 20 minutes.

Write the function; then: python -m pytest docs/exercises/01_gae.py

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


def close(ours, others):
    return all(abs(a - b) < 1e-9 for a, b in zip(ours, others, strict=True))


def check(ours, wanted, hint, *mistakes):
    """Fail with the hint of the mistake that leads to our numbers, or else with `hint`."""
    __tracebackhide__ = True
    assert len(ours) == len(wanted), "return one advantage for each step"
    targets = [a + v for a, v in zip(wanted, VALUES, strict=False)]
    mistakes += (targets, "these are A + V, the value targets: return A"), (wanted[::-1], REVERSED)
    hint = next((words for wrong, words in mistakes if close(ours, wrong)), hint)
    right, (got, want) = close(ours, wanted), ([round(x, 4) for x in y] for y in (ours, wanted))
    assert right, f"got {got}, wanted {want}: {hint}"


REVERSED = "in reversed order: the advantage of step 0 comes first"
ONLY_GAMMA = "multiply the later advantage by gamma * lambda, not by gamma"
NEXT_VALUE = "next_value is for the last step: for step t it is values[t + 1]"
ONLY_HALF = "an end cuts off the value AND the advantage of the next step; here only the"


def test_one_step():
    """One step: 1 + 0.5 * 4 - 0.5."""
    check(gae([1.0], [0.5], [0], 4.0, 0, 0.5, 0.9), [2.5], "delta = r + gamma V(next) - V")


def test_end_of_an_episode():
    """The episode ends with the step: nothing of the next one counts."""
    reward = [-0.5], "the last step has its reward: only what comes after it is gone"
    hint = "next_done is 1: V(next) must not count"
    check(gae([1.0], [0.5], [0], 4.0, 1, 0.5, 0.9), [0.5], hint, reward)


def test_three_steps():
    check(
        gae(REWARDS, VALUES, [0, 0, 0], 0.65, 0, 0.5, 0.9),
        [1.0264375, 0.05875, 2.075],
        "go backwards in time: A_t needs A_{t+1}",
        ([1.08125, 0.1625, 2.075], ONLY_GAMMA),
        ([0.9414375, 0.25875, 2.075], NEXT_VALUE),
    )


def test_end_in_the_middle():
    """Step 2 starts an episode, so step 1 is the last of one."""
    check(
        gae(REWARDS, VALUES, [0, 0, 1], 0.65, 0, 0.5, 0.9),
        [0.55, -1.0, 2.075],
        "dones[t + 1] tells whether step t was the last of its episode, dones[t] does not",
        ([0.9701875, -0.06625, 2.075], f"{ONLY_HALF} value"),
        ([0.60625, -0.875, 2.075], f"{ONLY_HALF} advantage"),
        ([0.5, -1.0, 2.075], ONLY_GAMMA),
        ([0.375, -1.0, 2.075], NEXT_VALUE),
    )


def test_start_of_an_episode():
    """Step 0 starts an episode: the one before ended before these steps."""
    ours = gae(REWARDS, VALUES, [1, 0, 0], 0.65, 0, 0.5, 0.9)
    wanted = gae(REWARDS, VALUES, [0, 0, 0], 0.65, 0, 0.5, 0.9)
    check(ours, wanted, "dones[0] tells of the step BEFORE step 0: it must not matter")
