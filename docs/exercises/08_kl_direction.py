"""Exercise 8: which way round? The two directions of the KL divergence. 20 minutes.

  KL[p, q] = sum_a p(a) (ln p(a) - ln q(a))

Work with paper and pencil, and replace each None. Numbers may be written as a calculation, such as
3 / 8. Then: python -m pytest docs/exercises/08_kl_direction.py
"""

import math
from numbers import Real

OLD = [1 / 2, 1 / 4, 1 / 8, 1 / 8]  # pi_old in some state: 4 actions
NEW = [1 / 8, 1 / 2, 1 / 8, 1 / 4]  # pi in the same state

# 1. All their logarithms are multiples of ln 2. How many ln 2 are the two divergences?
KL_OLD_NEW = None  # KL[pi_old, pi]
KL_NEW_OLD = None  # KL[pi, pi_old]

# 2. Two actions. Which divergences grow beyond all bounds: "KL[pi_old, pi]", "KL[pi, pi_old]",
#    "both" or "neither"?
FORGETTING = None  # pi_old takes each action half of the time, pi the first one ever more rarely
TRYING = None  # pi takes each action half of the time, pi_old took the first one ever more rarely

# 3. The policy phase knows only the actions that pi_old took, with r = pi(a) / pi_old(a), and
#    estimates KL[pi_old, pi] as 1/2 E[(ln r)^2]. How many (ln 2)^2 is that for OLD and NEW?
ESTIMATE = None

# 4. What is the estimate for policies that are close: "half", "equal" or "double" the divergence,
#    nearly?
NEAR = None

# 5. And for policies that are far from each other: always "too large", always "too small", or
#    "either"? Try OLD and NEW, and pi_old = (0.99, 0.01) with pi = (0.5, 0.5).
FAR = None

# ------------------------------------------------------------------------------------- the checks

WHICH = "KL[pi_old, pi]", "KL[pi, pi_old]", "both", "neither"
OPTIONS = {
    "FORGETTING": WHICH,
    "TRYING": WHICH,
    "NEAR": ("half", "equal", "double"),
    "FAR": ("too large", "too small", "either"),
}


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def estimate(old, new):
    return sum(p * math.log(q / p) ** 2 for p, q in zip(old, new, strict=True)) / 2


def given(name):
    answer = globals()[name]
    if answer is None:
        raise NotImplementedError(f"answer {name}")
    if name in OPTIONS:
        assert answer in OPTIONS[name], f"{name} is one of {OPTIONS[name]}"
    else:
        hint = f"{name} is a number or a calculation, without quotes, such as 3 / 8"
        assert isinstance(answer, Real), hint
    return answer


def equal(a, b):
    return abs(a - b) < 0.006  # two decimals are good enough


def check(name, right, hint, *mistakes):
    """Fail with the hint of the mistake that leads to our answer, or else with `hint`."""
    ours = given(name)
    likely = [words for wrong, words in mistakes if equal(ours, wrong)]
    hint = "; or: ".join(likely) or hint
    fits = ours == right if isinstance(right, str) else equal(ours, right)
    assert fits, f"{name}: {hint}"


def unbounded(old_and_new):
    """Which divergences grow and grow, as a probability falls; (p, pi_old, pi) -> answer."""
    growth = []
    for direction in (0, 1):
        values = [kl(*old_and_new(10.0**-n)[:: 1 - 2 * direction]) for n in (4, 8, 16)]
        growth.append(values[2] - values[1] > 1)  # it does not settle
    return WHICH[{(True, False): 0, (False, True): 1, (True, True): 2}.get(tuple(growth), 3)]


def test_by_hand():
    forward, backward = kl(OLD, NEW) / math.log(2), kl(NEW, OLD) / math.log(2)
    for name, right, turned, first, weights in (
        ("KL_OLD_NEW", forward, backward, "pi_old", OLD),
        ("KL_NEW_OLD", backward, forward, "pi", NEW),
    ):
        unsigned = sum(w * abs(math.log2(p / q)) for w, p, q in zip(weights, OLD, NEW, strict=True))
        check(
            name,
            right,
            "no mistake that this check knows. For each action, probability x halvings; then add",
            (turned, f"the FIRST policy's probabilities weigh: {first}'s"),
            (-right, "ln of the first minus ln of the second"),
            (right / 4, f"an expectation over {first}, no mean over 4"),
            (right * math.log(2), "in units of ln 2"),
            (unsigned, "halvings have a sign: a doubling counts -1"),
        )


def test_forgetting():
    right = unbounded(lambda p: ([0.5, 0.5], [p, 1 - p]))
    hint = "one of them weighs ln(p / q) by how often the policy that FORGETS takes the action"
    check("FORGETTING", right, f"{hint}; p ln p goes to 0, and ln p does not")


def test_trying():
    right = unbounded(lambda p: ([p, 1 - p], [0.5, 0.5]))
    hint = "pi_old's probability of the action is tiny: where it is the weight, the term vanishes"
    check("TRYING", right, hint)


def test_estimate():
    ln2, right = math.log(2), estimate(OLD, NEW) / math.log(2) ** 2
    unsigned = sum(p * abs(math.log2(p / q)) for p, q in zip(OLD, NEW, strict=True)) / 2
    square = "square the number of halvings of each action, before you add"
    check(
        "ESTIMATE",
        right,
        "1/2 x sum of pi_old's probability x (number of halvings)^2",
        (2 * right, "the factor 1/2"),
        (estimate(NEW, OLD) / ln2**2, "the actions are pi_old's: weigh by OLD; and square"),
        (0.75, "an expectation over pi_old, no mean over 4 actions"),
        (right * ln2**2, "in units of (ln 2)^2"),
        (right * ln2, "in units of (ln 2)^2"),
        (unsigned, square),
        (kl(OLD, NEW) / ln2 / 2, square),
        ((kl(OLD, NEW) / ln2) ** 2 / 2, square),
    )


def test_near():
    near = [p + d for p, d in zip(OLD, (0.004, -0.003, -0.002, 0.001), strict=True)]
    ratio = estimate(OLD, near) / kl(OLD, near)
    right = "equal" if abs(ratio - 1) < 0.1 else "half" if ratio < 1 else "double"
    check("NEAR", right, "E[ln r] is not 0: expand E[r] = 1 in ln r, to second order")


def test_far():
    pairs = (OLD, NEW), ([0.99, 0.01], [0.5, 0.5])
    signs = {estimate(*pair) > kl(*pair) for pair in pairs}
    right = "either" if len(signs) == 2 else "too large" if signs == {True} else "too small"
    check("FAR", right, "compare the numbers of BOTH pairs; ln 2 is about 0.69")
