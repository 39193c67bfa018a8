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

REWARDS, VALUES = [1.0, 0.0, 2.0], [0.75, 1.0, 0.25]
NAMES = "rewards, values, dones, next_value, next_done, gamma, gae_lambda"


def advantages(rewards, values, dones, next_value, next_done, gamma, gae_lambda, mistake=None):
    """The right ones, or those of a mistake: each sums up the surprises to the episode's end."""
    steps, after, ends = range(len(rewards)), [*values[1:], next_value], [*dones[1:], next_done]
    if mistake == "next_value":
        after = [next_value for _ in steps]
    if mistake in ("dones", "dones but the last"):
        ends = dones if mistake == "dones" else [*dones[:-1], next_done]
    cut = [0 if mistake in ("value not cut", "ends ignored") else end for end in ends]
    discount = 1 if mistake == "V undiscounted" else gamma
    kept = [1 - end if mistake == "reward cut" else 1 for end in ends]
    minus = [
        v * (1 - end) if mistake == "V cut" else v for v, end in zip(values, ends, strict=True)
    ]
    delta = [kept[t] * rewards[t] + discount * (1 - cut[t]) * after[t] - minus[t] for t in steps]
    if mistake == "V not subtracted":
        delta = [d + v for d, v in zip(delta, values, strict=True)]
    if mistake == "all cut":
        delta = [0 if end else d for d, end in zip(delta, ends, strict=True)]
    decays = {"gamma": gamma, "lambda": gae_lambda, "no decay": 1.0, "delta": 0.0}
    decay, result = decays.get(mistake, gamma * gae_lambda), []
    for t in steps:
        end = next((k for k in steps if k >= t and ends[k]), len(rewards) - 1)
        end = len(rewards) - 1 if mistake in ("advantage not cut", "ends ignored") else end
        result.append(sum(decay ** (k - t) * delta[k] for k in range(t, end + 1)))
    if mistake == "not updated":  # next_value, next_done stay what they were at the episode's end
        last = max((t for t in steps if ends[t]), default=-1)
        result = [rewards[t] - values[t] if t <= last else result[t] for t in steps]
    if mistake == "A + V":
        result = [a + v for a, v in zip(result, values, strict=True)]
    if mistake == "sign":
        result = [-a for a in result]
    return result[::-1] if mistake == "reversed" else result


MISTAKES = {
    "sign": "the sign is turned: delta = r + gamma V(next) - V",
    "A + V": "these are A + V, the value targets: return A",
    "V not subtracted": "what was expected is subtracted: delta = r + gamma V(next) - V",
    "ends ignored": "neither V(next) nor A(next) may count where an episode ends",
    "gamma": "multiply the later advantage by gamma * lambda, not by gamma",
    "lambda": "multiply the later advantage by gamma * lambda, not by lambda",
    "no decay": "multiply the later advantage by gamma * lambda",
    "delta": "these are the delta_t: A_t is delta_t + gamma * lambda * A_{t+1}",
    "V undiscounted": "V(next) is multiplied by gamma",
    "next_value": "next_value is for the last step: for step t it is values[t + 1]",
    "value not cut": "V(next) must not count where an episode ends; only A(next) is cut off here",
    "advantage not cut": "A(next) must not count where an episode ends; only V(next) is cut here",
    "dones": "dones[t + 1] tells whether step t was the last of its episode, dones[t] does not",
    "dones but the last": "dones[t + 1] tells whether step t was the last of its episode",
    "reward cut": "the last step has its reward: only what comes after it is gone",
    "V cut": "V of the last step itself still counts: r - V",
    "all cut": "the last step has an advantage, r - V: only what comes after it is gone",
    "not updated": "next_value and next_done must go on changing after the last step of an episode",
    "reversed": "in reversed order: the advantage of step 0 comes first",
}


def numbers(ours):
    """What the function returned, as a list: tensors and arrays will do."""
    assert ours is not None, "gae returns nothing: is `return` missing?"
    pair = isinstance(ours, tuple) and len(ours) == 2 and hasattr(ours[0], "__len__")
    assert not pair, "return only the advantages"
    ours = list(ours)
    single = all(getattr(x, "shape", ()) in ((), (1,)) and not isinstance(x, list) for x in ours)
    assert single, "return a list of numbers"
    return [float(x) for x in ours]


def close(ours, others):
    return all(abs(a - b) < 1e-5 for a, b in zip(ours, others, strict=True))


def check(*inputs):
    """Fail with the hints of the mistakes that lead to our numbers, if any does."""
    given = [list(x) if isinstance(x, list) else x for x in inputs]
    ours, right = numbers(gae(*given)), advantages(*inputs)
    assert given == list(inputs), f"gae changes one of the lists that it is given ({NAMES})"
    assert len(ours) == len(right), f"one advantage for each step: {len(right)}, not {len(ours)}"
    likely = [words for name, words in MISTAKES.items() if close(ours, advantages(*inputs, name))]
    got, wanted = ([round(x, 4) for x in y] for y in (ours, right))
    hint = "; or: ".join(likely) or "no mistake that this check knows"
    fits = close(ours, right)
    assert fits, f"got {got}, wanted {wanted}: {hint}"


def test_one_step():
    """One step: 1 + 0.5 * 4 - 0.75."""
    check([1.0], [0.75], [0], 4.0, 0, 0.5, 0.9)


def test_end_of_an_episode():
    """The episode ends with the step: nothing of the next one counts."""
    check([1.0], [0.75], [0], 4.0, 1, 0.5, 0.9)


def test_three_steps():
    check(REWARDS, VALUES, [0, 0, 0], 0.65, 0, 0.5, 0.9)


def test_end_in_the_middle():
    """Step 2 starts an episode, so step 1 is the last of one."""
    check(REWARDS, VALUES, [0, 0, 1], 0.65, 0, 0.5, 0.9)


def test_start_of_an_episode():
    """Step 0 starts an episode: the one before ended before these steps."""
    with_start, without = ([x, 0, 0] for x in (1, 0))
    ours = [
        numbers(gae(REWARDS[:], VALUES[:], x, 0.65, 0, 0.5, 0.9)) for x in (with_start, without)
    ]
    same = close(*ours)
    assert same, "dones[0] tells of the step BEFORE step 0: it must not matter"
    check(REWARDS, VALUES, [1, 0, 0], 0.65, 0, 0.5, 0.9)
