"""The published numbers of benchmark/published/, for whoever compares with them.

Needs nothing but the standard library: the documentation reads them, too.
"""

import csv
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"


def rows(name):
    """The rows of a file, such as published_curves, as dictionaries of strings."""
    with open(PUBLISHED / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def normalisation(game, mode):
    """The returns that count as 0 and as 1; None for modes without published constants."""
    if mode not in ("easy", "hard"):
        return None
    row = next(row for row in rows("normalisation") if row["game"] == game)
    return [float(row[f"{mode}_{end}"]) for end in ("min", "max")]


def normalised(returns, game, mode):
    """A return, or an array of them, on the scale of the authors' code; mode is easy or hard."""
    low, high = normalisation(game, mode)
    return (returns - low) / (high - low)
