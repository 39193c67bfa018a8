"""Exercise 9: what may we conclude from the published ablations? 30 minutes.

Write the two functions, and replace each None. Then:
python -m pytest docs/exercises/09_ablations.py

The files are described in benchmark/published/README.md. Rows are dictionaries of strings, as
csv.DictReader has them: float(row["step"]). As soon as your two functions are right,
python docs/exercises/09_ablations.py prints your limit and all final means.
"""

import csv
import importlib
import math
from numbers import Real
from pathlib import Path


def final_mean(rows, parameter, value):
    """Mean of mean_normalised_return over the last 5 % of the steps: step > 0.95 x the last step.

    rows: those of published_ablations.csv, such as {"parameter": "n_pi", "value": "2", ...}, which
    have strings. value is a number, such as 2.
    """
    raise NotImplementedError


def spread(rows, constants, algorithm):
    """How much the mean over 16 games varies from run to run, on hard levels.

    rows: those of published_final.csv. constants: those of normalisation.csv, by game; a return is
    normalised as (return - hard_min) / (hard_max - hard_min), and a deviation divided by the same
    hard_max - hard_min. With s_1 ... s_16 the normalised return_std of the games,

      spread = sqrt(s_1^2 + ... + s_16^2) / 16
    """
    raise NotImplementedError


# Two single runs differ by chance, with deviation sqrt(2) x spread. Call a difference of their
# final means a finding if it is more than twice that, with the spread of PPG. Is it? True or False.
FINDING = {
    ("n_pi", 4, 8): None,
    ("n_pi", 16, 32): None,
    ("e_pi", 1, 2): None,
    ("e_pi", 2, 3): None,
    ("e_aux", 1, 6): None,
    ("e_aux", 3, 6): None,
}

# The runs of an ablation have the defaults of ppg_procgen.py but for one parameter. Which of its
# values is the default? So the file has three runs of the SAME setting.
DEFAULT = {"n_pi": None, "e_pi": None, "e_aux": None}
# By the rule above, would the lowest and the highest of the three be a finding? True or False.
SAME_SETTING_FAR_APART = None

# What follows from the file, by the same rule? True or False.
FOLLOWS = {
    "E_pi = 4 is better than 5, and 5 better than 6": None,
    "N_pi = 16 is the best of the five values": None,
    "N_pi = 16 is better than 8 in every game": None,
    "E_aux = 9 is better than any other number of epochs": None,
    "E_pi = 1 is better than 2 on easy levels, too": None,
}

# ------------------------------------------------------------------------------------- the checks

PUBLISHED = Path(__file__).parents[2] / "benchmark" / "published"


def published(name):
    with open(PUBLISHED / f"{name}.csv") as file:
        return list(csv.DictReader(file))


ABLATIONS, FINAL = published("published_ablations"), published("published_final")
ALGORITHMS = {row["algorithm"] for row in FINAL}
CONSTANTS = {row["game"]: row for row in published("normalisation")}


def mean(numbers):
    return sum(numbers) / len(numbers)


def curve(parameter, value, after=0.0):
    """The returns of one run after a fraction of its steps."""
    key = [parameter, str(value)]
    rows = [row for row in ABLATIONS if [row["parameter"], row["value"]] == key]
    start = after * float(rows[-1]["step"])
    return [float(row["mean_normalised_return"]) for row in rows if float(row["step"]) > start]


def deviations(algorithm, modes=("hard",), high="hard_max", low="hard_min"):
    """The deviations between seeds, one for each game (and mode), divided by high - low of it."""
    result = []
    for row in FINAL:
        if row["algorithm"] == algorithm and row["mode"] in modes:
            game = CONSTANTS[row["game"]]
            width = float(game.get(high, 1)) - float(game.get(low, 0))
            result.append(float(row["return_std"]) / width)
    return result


def root_of_squares(numbers):
    return math.sqrt(sum(x * x for x in numbers))


def difference(parameter, one, other):
    return abs(mean(curve(parameter, one, 0.95)) - mean(curve(parameter, other, 0.95)))


LIMIT = 2 * math.sqrt(2) * root_of_squares(deviations("ppg")) / 16


def number(ours, what):
    assert ours is not None, f"{what} returns nothing: is `return` missing?"
    assert isinstance(ours, Real), f"{what}: return one number, not {ours!r}"
    return ours


def yes_or_no(answer, what):
    if answer is None:
        raise NotImplementedError
    assert isinstance(answer, bool), f"{what}: True or False, without quotes"
    return answer


def not_equal(ours, wrong, right, hint):
    assert abs(ours - wrong) > 1e-6 or abs(right - wrong) < 1e-6, hint


def test_final_mean():
    everything = [float(row["mean_normalised_return"]) for row in ABLATIONS]
    for parameter, value in ("n_pi", 4), ("e_pi", 6), ("e_aux", 3):
        ours, run = final_mean(ABLATIONS, parameter, value), curve(parameter, value)
        number(ours, "final_mean")
        right = mean(curve(parameter, value, 0.95))
        not_equal(ours, run[-1], right, "that is the last row alone: one noisy point")
        not_equal(ours, max(run), right, "that is the maximum: whoever picks it picks luck, too")
        not_equal(ours, mean(run), right, "that is the mean of all steps, not of the last 5 %")
        both = "choose the rows of this parameter AND this value"
        not_equal(ours, mean(everything), right, both)
        last = max(float(row["step"]) for row in ABLATIONS)
        end = [row for row in ABLATIONS if float(row["step"]) > 0.95 * last]
        for keys in [("parameter", parameter)], [("value", str(value))], []:
            chosen = [row for row in end if all(row[key] == x for key, x in keys)]
            other = mean([float(row["mean_normalised_return"]) for row in chosen])
            not_equal(ours, other, right, both)
        for count in math.floor(0.05 * len(run)), math.ceil(0.05 * len(run)):
            hint = "that is the mean of the last 5 % of the ROWS: compare each row's step"
            not_equal(ours, mean(run[-count:]), right, hint)
        assert abs(ours - right) < 1e-6, f"{parameter} = {value}: {ours:.4f} is not {right:.4f}"


def test_spread():
    for algorithm in "ppg", "ppo":
        ours, hard = spread(FINAL, CONSTANTS, algorithm), deviations(algorithm)
        number(ours, "spread")
        right, both = root_of_squares(hard) / 16, deviations(algorithm, ("easy", "hard"))
        mixed = "the file has PPO on easy levels, too: choose the rows with mode hard"
        for count in 16, len(both):
            not_equal(ours, root_of_squares(both) / count, right, mixed)
        everyone = [x for name in ALGORITHMS for x in deviations(name)]
        for count in 16, len(everyone):
            hint = "choose the rows of this algorithm"
            not_equal(ours, root_of_squares(everyone) / count, right, hint)
        easy = root_of_squares(deviations(algorithm, high="easy_max", low="easy_min")) / 16
        not_equal(ours, easy, right, "the runs are hard: easy levels have other constants")
        for high in "", "hard_max":
            undivided = root_of_squares(deviations(algorithm, high=high, low="")) / 16
            divide = "divide each deviation by hard_max - hard_min of its game"
            not_equal(ours, undivided, right, divide)
        hint = "the mean over games varies less than one game does: sqrt(sum of squares) / 16"
        for wrong in mean(hard), root_of_squares(hard) / 4, root_of_squares(hard):
            not_equal(ours, wrong, right, hint)
        assert abs(ours - right) < 1e-6, f"{algorithm}: {ours:.5f} is not {right:.5f}"


def test_finding():
    for (parameter, one, other), answer in FINDING.items():
        yes_or_no(answer, f"{parameter} {one} and {other}")
        gap = difference(parameter, one, other)
        numbers = f"{parameter} {one} and {other}: {gap:.4f} apart, the limit is {LIMIT:.4f}: "
        assert not answer or gap > LIMIT, f"{numbers}chance alone may do that, no order follows"
        assert answer or gap <= LIMIT, f"{numbers}chance alone rarely does that"


def test_same_setting():
    ppg_procgen = importlib.import_module("ppg_procgen")
    for parameter, value in DEFAULT.items():
        if value is None:
            raise NotImplementedError
        hint = f"python ppg_procgen.py --help tells the default of {parameter}"
        right = value == getattr(ppg_procgen.Args(), parameter)  # pytest would print both sides
        assert right, hint
    yes_or_no(SAME_SETTING_FAR_APART, "SAME_SETTING_FAR_APART")
    means = [mean(curve(parameter, value, 0.95)) for parameter, value in DEFAULT.items()]
    apart = max(means) - min(means)
    right = (apart > LIMIT) == SAME_SETTING_FAR_APART
    assert right, (
        f"they are {apart:.4f} apart, the limit is {LIMIT:.4f}, so that the rule does call it a "
        f"finding, within ONE setting. It is made for two runs that were chosen in advance, not "
        f"for the extremes of three; and three seeds tell the spread only roughly"
    )


TRUTH = {
    "E_pi = 4 is better than 5, and 5 better than 6": (
        min(difference("e_pi", 4, 5), difference("e_pi", 5, 6)) > LIMIT,
        "both differences are far above the limit",
    ),
    "N_pi = 16 is the best of the five values": (
        min(difference("n_pi", 16, value) for value in (2, 4, 8, 32)) > LIMIT,
        "16 and 32 differ by less than the limit",
    ),
    "N_pi = 16 is better than 8 in every game": (
        "game" in ABLATIONS[0],
        "a mean over 16 games tells nothing about each of them",
    ),
    "E_aux = 9 is better than any other number of epochs": (
        any(row["parameter"] == "e_aux" and float(row["value"]) > 9 for row in ABLATIONS),
        "nobody tried more than 9",
    ),
    "E_pi = 1 is better than 2 on easy levels, too": (
        "mode" in ABLATIONS[0],
        "all runs of this file are on hard levels, as its README says",
    ),
}


def test_what_follows():
    for statement, answer in FOLLOWS.items():
        yes_or_no(answer, statement)
        right = answer == TRUTH[statement][0]  # pytest would print both sides
        assert right, f"{statement}: {TRUTH[statement][1]}"


def show():
    """Print the limit and the final means, with the two functions above."""
    limit = 2 * math.sqrt(2) * spread(FINAL, CONSTANTS, "ppg")
    print(f"limit {limit:.4f}")
    for parameter, value in sorted({(row["parameter"], int(row["value"])) for row in ABLATIONS}):
        print(f"{parameter:6}{value:3}  {final_mean(ABLATIONS, parameter, value):.4f}")


if __name__ == "__main__":
    show()
