"""Each exercise's check fails on the stub, passes with the solution, and names likely mistakes."""

import importlib.util
import inspect
from pathlib import Path

import pytest

EXERCISES = Path(__file__).parents[1] / "docs" / "exercises"
NAMES = [file.stem for file in sorted(EXERCISES.glob("ex*.py"))]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checks(exercise):
    return [function for name, function in vars(exercise).items() if name.startswith("test_")]


def solve(exercise, **answers):
    """Put answers into an exercise, for its functions or constants of the same name."""
    for name, answer in answers.items():
        assert hasattr(exercise, name), name
        setattr(exercise, name, answer)
    return exercise


@pytest.mark.parametrize("name", NAMES)
def test_stub_fails_and_solution_passes(name):
    exercise = load(EXERCISES / f"{name}.py")
    assert checks(exercise)
    for check in checks(exercise):
        with pytest.raises(NotImplementedError):
            check()
    solution = load(EXERCISES / "solutions" / f"{name}.py")
    answers = {
        key: value
        for key, value in vars(solution).items()
        if not key.startswith("__") and not inspect.ismodule(value)
    }
    for check in checks(solve(exercise, **answers)):
        check()


GAE = inspect.getsource(load(EXERCISES / "solutions" / "ex01_gae.py"))
JOINT = inspect.getsource(load(EXERCISES / "solutions" / "ex04_joint_loss.py"))
MISTAKES = [  # exercise, its solution, a right line, a wrong one, what the check says about it
    ("ex01_gae", GAE, "gamma * gae_lambda", "gamma", "not by gamma"),
    ("ex01_gae", GAE, "gamma * going_on * next_value", "gamma * next_value", "must not count"),
    ("ex01_gae", GAE, "= values[t], dones[t]", "= values[t], dones[t - 1]", "dones[t + 1] tells"),
    (
        "ex04_joint_loss",
        JOINT,
        "kl_divergence(old_logits, logits):",
        "kl_divergence(logits, old_logits):",
        "weigh by the OLD",
    ),
    ("ex04_joint_loss", JOINT, ".sum(-1).mean()", ".mean()", "sum over actions"),
    ("ex04_joint_loss", JOINT, ".sum(-1).mean()", ".sum()", "not their sum"),
    ("ex04_joint_loss", JOINT, "0.5 * (", "1.0 * (", "factor 1/2"),
    ("ex04_joint_loss", JOINT, " + L_value", "", "L^value is trained"),
    ("ex04_joint_loss", JOINT, "beta_clone * kl", "kl", "beta_clone"),
]


@pytest.mark.parametrize(("name", "solution", "right", "wrong", "said"), MISTAKES)
def test_likely_mistake_is_named(name, solution, right, wrong, said):
    assert right in solution
    answers = {}
    exec(solution.replace(right, wrong), answers)
    del answers["__builtins__"]
    exercise = solve(load(EXERCISES / f"{name}.py"), **answers)
    said_by_checks = []
    for check in checks(exercise):
        try:
            check()
        except AssertionError as error:
            said_by_checks.append(str(error))
    assert any(said in text for text in said_by_checks), said_by_checks
