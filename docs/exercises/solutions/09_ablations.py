import math


def final_mean(rows, parameter, value):
    rows = [row for row in rows if row["parameter"] == parameter and int(row["value"]) == value]
    last_step = max(float(row["step"]) for row in rows)
    end = [row for row in rows if float(row["step"]) > 0.95 * last_step]
    return sum(float(row["mean_normalised_return"]) for row in end) / len(end)


def spread(rows, constants, algorithm):
    squares = []
    for row in rows:
        if row["algorithm"] == algorithm and row["mode"] == "hard":
            game = constants[row["game"]]
            width = float(game["hard_max"]) - float(game["hard_min"])
            squares.append((float(row["return_std"]) / width) ** 2)
    return math.sqrt(sum(squares)) / len(squares)


FINDING = {
    ("n_pi", 4, 8): True,
    ("n_pi", 16, 32): False,
    ("e_pi", 1, 2): True,
    ("e_pi", 2, 3): False,
    ("e_aux", 1, 6): True,
    ("e_aux", 3, 6): False,
}

DEFAULT = {"n_pi": 32, "e_pi": 1, "e_aux": 6}
SAME_SETTING_FAR_APART = True  # 0.026, with a limit of 0.025: take the limit as a rough one

FOLLOWS = {
    "E_pi = 4 is better than 5, and 5 better than 6": True,
    "N_pi = 16 is the best of the five values": False,
    "N_pi = 16 is better than 8 in every game": False,
    "E_aux = 9 is better than any other number of epochs": False,
    "E_pi = 1 is better than 2 on easy levels, too": False,
}
