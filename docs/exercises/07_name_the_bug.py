"""Exercise 7: name the bug. 25 minutes.

Six runs of PPG on the tests' small game, A to F, each with a fault of its own. The page with the
exercises draws some of their scalars beside those of a healthy run, and
python docs/exercises/07_name_the_bug.py prints all. For each run choose one of FAULTS. Then:
python -m pytest docs/exercises/07_name_the_bug.py
"""

import csv
from collections import defaultdict
from hashlib import sha256
from pathlib import Path

import numpy as np

FAULTS = [
    "old policy in the loop",  # pi_old computed anew for each minibatch of the auxiliary phase
    "ends of episodes ignored",  # advantages and value targets reach into the next episode
    "targets are the old values",  # V_targ = V instead of A + V
    "log-probability of another action",  # stored: that of the likeliest action, not of the taken
    "advantages with the wrong sign",
    "gradients kept in the auxiliary phase",  # no zero_grad()
]

ANSWERS = {"A": None, "B": None, "C": None, "D": None, "E": None, "F": None}

# ------------------------------------------------------------------------------------- the checks

DATA = Path(__file__).resolve().parents[1] / "data" / "broken.csv"


def letters():
    """Letter -> fault."""
    shuffled = sorted(FAULTS, key=lambda fault: sha256(fault.encode()).hexdigest())
    return dict(zip("ABCDEF", shuffled, strict=True))


def runs():
    """Letter, or "healthy" -> scalar -> its values."""
    curves = defaultdict(lambda: defaultdict(list))
    with open(DATA) as file:
        for row in csv.DictReader(file):
            curves[row["run"]][row["tag"].split("/", 1)[1]].append(float(row["value"]))
    return {
        letter: {name: np.array(values) for name, values in curves[fault].items()}
        for letter, fault in (letters() | {"healthy": "healthy"}).items()
    }


# Fault -> its scalar, what to see there, and whether it is so in a run, given a healthy one.
SIGNS = {
    "old policy in the loop": (
        "aux/kl_loss",
        "exactly 0 throughout: the policy is compared with itself",
        lambda run, healthy: run["aux/kl_loss"].max() < 1e-6,
    ),
    "ends of episodes ignored": (
        "value_loss",
        "too large in the very first iteration: the targets sum up more than an episode has",
        lambda run, healthy: run["value_loss"][0] > 1.4 * healthy["value_loss"][0],
    ),
    "targets are the old values": (
        "explained_variance",
        "1 from the start: the targets are what the network says anyway",
        lambda run, healthy: run["explained_variance"].min() > 0.99,
    ),
    "log-probability of another action": (
        "approx_kl",
        "far too large from the second iteration on: the ratio compares two actions",
        lambda run, healthy: run["approx_kl"][1:4].min() > 0.12,
    ),
    "advantages with the wrong sign": (
        "episodic_return",
        "it falls, below chance",
        lambda run, healthy: run["episodic_return"][-1] < 0.5 * run["episodic_return"][0],
    ),
    "gradients kept in the auxiliary phase": (
        "aux/kl_loss",
        "large, and the auxiliary losses do not fall within a phase: steps in stale directions",
        lambda run, healthy: run["aux/kl_loss"].max() > 0.2,
    ),
}


def test_answers():
    shown = runs()
    for letter in letters():
        answer = ANSWERS.get(letter)
        if answer is None:
            raise NotImplementedError
        assert answer in FAULTS, f"run {letter}: choose one of FAULTS"
        scalar, words, sign = SIGNS[answer]
        told = f"run {letter} is not '{answer}', which would show in {scalar}: {words}"
        fits = bool(sign(shown[letter], shown["healthy"]))
        assert fits, told


def show():
    """Print the scalars of all runs. What is exactly 0 is printed as 0, without decimals."""
    shown = runs()
    for scalar in shown["healthy"]:
        print(f"\n{scalar}, each {'auxiliary epoch' if 'aux/' in scalar else 'iteration'}")
        for letter, run in shown.items():
            print(f"{letter:7}" + "".join(f"{x:7.3f}" if x else "      0" for x in run[scalar]))


if __name__ == "__main__":
    show()
