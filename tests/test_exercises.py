"""Each exercise's check fails on the stub, passes with the solution, and names likely mistakes."""

import importlib.util
import inspect
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXERCISES = Path(__file__).parents[1] / "docs" / "exercises"
NAMES = [file.stem for file in sorted(EXERCISES.glob("[0-9]*.py"))]


def load(name):
    """An exercise as a module, with its stubs."""
    spec = importlib.util.spec_from_file_location(name, EXERCISES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers_of(name, right="", wrong=""):
    """The functions and constants of a solution, in whose text a wrong line may replace a right."""
    text = (EXERCISES / "solutions" / f"{name}.py").read_text("utf-8")
    assert right in text
    answers = {}
    exec(text.replace(right, wrong) if right else text, answers)
    return {
        key: value
        for key, value in answers.items()
        if not key.startswith("__") and not inspect.ismodule(value)
    }


def solve(exercise, answers):
    """Put answers into an exercise, for its functions or constants of the same name."""
    for name, answer in answers.items():
        assert hasattr(exercise, name), name
        setattr(exercise, name, answer)
    return exercise


def checks(exercise):
    return [function for name, function in vars(exercise).items() if name.startswith("test_")]


def complaints(exercise):
    """What the checks say, one after the other."""
    for check in checks(exercise):
        try:
            check()
        except AssertionError as error:
            yield str(error)


@pytest.mark.parametrize(
    ("name", "answers"), [("02_clip", "CONTRIBUTES"), ("07_name_the_bug", "ANSWERS")]
)
def test_no_answers_are_not_right_ones(name, answers):
    (check,) = checks(solve(load(name), {answers: {}}))
    with pytest.raises(NotImplementedError):
        check()


@pytest.mark.parametrize("name", NAMES)
def test_stub_fails_and_solution_passes(name):
    exercise = load(name)
    assert checks(exercise)
    for check in checks(exercise):
        with pytest.raises(NotImplementedError):
            check()
    for check in checks(solve(exercise, answers_of(name))):
        check()


def test_minutes_are_the_same_everywhere():
    page = (EXERCISES.parent / "exercises.md").read_text("utf-8")
    labels = re.findall(r"^\| \{numref\}`(.*?)` .* \| (\w+) \| (\w+) \|$", page, re.M)
    boxes = re.findall(r"^::::\{exercise\} (\w+), (\w+) .*: `(.*).py`\n:label: (.*)$", page, re.M)
    assert [name for *_, name, _ in boxes] == NAMES
    assert labels == [(label, difficulty, minutes) for difficulty, minutes, _, label in boxes]
    for _, minutes, name, _ in boxes[:-1]:
        assert f" {minutes} minutes.\n" in (EXERCISES / f"{name}.py").read_text("utf-8")


def wrong_options(exercise, answers):
    """(constant, value) of every wrong choice in a solution, one at a time."""
    for key, options in getattr(exercise, "OPTIONS", {}).items():
        yield from ((key, option) for option in options if option != answers[key])
    for key, answer in answers.items():
        if isinstance(answer, bool):
            yield key, not answer
        if isinstance(answer, dict):
            chosen = {case: value for case, value in answer.items() if isinstance(value, bool)}
            yield from ((key, answer | {case: not value}) for case, value in chosen.items())


@pytest.mark.parametrize(
    ("name", "count"),
    [("02_clip", 6), ("06_old_policy", 9), ("08_kl_direction", 10), ("09_ablations", 12)],
)
def test_every_wrong_option_fails_with_one_message(name, count):
    exercise, answers = load(name), answers_of(name)
    wrong = list(wrong_options(exercise, answers))
    assert len(wrong) == count
    for key, value in wrong:
        said = list(complaints(solve(exercise, answers | {key: value})))
        assert len(said) == 1 and len(said[0]) > 20, (key, value, said)


BACKWARD = "            optimizer.zero_grad()\n            loss.backward()\n"
STEP = "            optimizer.step()\n"
OLD_LOGITS = """\
    with torch.no_grad():
        old_logits = torch.stack([agent(trajectory)[0] for trajectory in obs])
    for _ in range(args.e_aux):
"""
OLD_LOGITS_MOVED = """\
    for _ in range(args.e_aux):
        old_logits = torch.stack([agent(trajectory)[0].detach() for trajectory in obs])
"""
OLD_LOGITS_TAKEN = """\
    import ppg_procgen
    old_logits = ppg_procgen.old_policy_logits(agent, buffer, args)
    for _ in range(args.e_aux):
"""
NOT_UPDATED = """\
- values[t]
        if next_done:
            advantages[t] = rewards[t] - values[t]
            continue
"""
TWICE = """\
            L_aux.backward()
            (loss - L_aux).backward()
"""
BUFFER = 'buffer["obs"], buffer["returns"]'
ROLLED = (
    f"(x.flatten(0, 1).roll(1, 0).unflatten(0, (len(x), -1)) for x in ({BUFFER}))"  # by one step
)
CLEAR = "            stored_obs.clear()\n            stored_returns.clear()\n"
CAT = '{"obs": torch.cat(stored_obs), "returns": torch.cat(stored_returns)}'
CAT_TIME = CAT.replace("stored_obs", "stored_obs, 1").replace("stored_returns", "stored_returns, 1")
PERMUTATION = "torch.randperm(len(obs))"
RANDOM = "torch.tensor(__import__('random').sample(range(len(obs)), len(obs)))"
PHASE = "            auxiliary_phase("
NEW_ADAM = "            optimizer = torch.optim.Adam(agent.parameters(), lr=5e-4)\n"
RETURNS = 'float(row["mean_normalised_return"])'
FINAL_MEAN = f"    return sum({RETURNS}"
END = 'end = [row for row in rows if float(row["step"]) > 0.95 * last_step]'
WIDTH = 'width = float(game["hard_max"]) - float(game["hard_min"])'
MEAN = "return math.sqrt(sum(squares)) / len(squares)"
REPEATED = "Yes, features that predict values help most as long as the policy is bad!"
MISTAKES = {  # exercise: [(a right line of its solution, a wrong one, what the check says)]
    "01_gae": [
        ("gamma * gae_lambda", "gamma", "not by gamma"),
        ("gamma * gae_lambda", "gae_lambda", "not by lambda"),
        (" gamma * gae_lambda *", "", "multiply the later advantage by gamma * lambda"),
        (" + gamma * gae_lambda * going_on * advantage", "", "these are the delta_t"),
        ("gamma * going_on * next_value", "going_on * next_value", "V(next) is multiplied"),
        ("gamma * going_on * next_value", "gamma * next_value", "V(next) must not count"),
        (" * going_on * advantage", " * advantage", "A(next) must not count"),
        ("= values[t], dones[t]", "= values[t], dones[t - 1]", "dones[t + 1] tells"),
        ("going_on = 1 - next_done", "going_on = 1 - dones[t]", "dones[t + 1] tells"),
        ("= rewards[t]", "= going_on * rewards[t]", "has its reward"),
        (" - values[t]", "", "what was expected is subtracted"),
        ("going_on = 1 - next_done", "going_on = 1", "neither V(next) nor A(next)"),
        ("- values[t]", "- going_on * values[t]", "still counts: r - V"),
        ("        advantage = delta", "        delta *= going_on\n        advantage = delta",
         "the last step has an advantage"),
        ("- values[t]\n", NOT_UPDATED, "must go on changing"),
        ("return advantages", "return advantages[::-1]", "in reversed order"),
        ("return advantages", "return [-x for x in advantages]", "the sign is turned"),
        ("return advantages", "", "is `return` missing"),
        ("return advantages", "return advantages, [1.0, 2.0]", "return only the advantages"),
        ("return advantages", "return advantages[1:]", "one advantage for each step: 1, not 0"),
        ("return advantages", "return [advantages]", "a list of numbers"),
        ("= [0.0] * len(rewards), 0.0", "= rewards, 0.0", "changes one of the lists"),
        ("next_value, next_done = values[t], ", "next_done = ", "it is values[t + 1]"),
        ("= advantage\n", "= advantage + values[t]\n", "these are A + V"),
        ("1 - next_done", "1 - (next_done or dones[t])", "must not matter"),
        ("advantage = delta", "advantage = 0.5 + delta", "no mistake that"),
    ],
    "02_clip": [
        ("(1.0, -1.0): True", '(1.0, -1.0): "True"', "without quotes"),
        ("(1.0, -1.0): True", "(1.0, -1.0): -1.0", "without quotes"),
    ],
    "03_numbers": [
        ("math.log(15)", "math.log2(15)", "nats, not bits"),
        ("e_aux * math.ceil(num_envs", "math.ceil(e_aux * num_envs", "EACH epoch"),
        ("math.ceil(num_envs * n_pi", "math.ceil(n_pi", "count the trajectories"),
        ("return 1\n", "return '1'\n", "return one number, not '1'"),
        ("math.ceil(num_envs * n_pi", "n_pi * math.ceil(num_envs", "count the trajectories"),
        ("num_steps * n_pi", "256 * n_pi", "one byte for each colour"),
        ("return 1\n", "pass\n", "is `return` missing"),
    ],
    "04_joint_loss": [
        ("kl_divergence(old_logits, logits):", "kl_divergence(logits, old_logits):", "the OLD"),
        (".sum(-1).mean()", ".mean()", "sum over actions"),
        (".sum(-1).mean()", ".sum()", "not their sum"),
        ("0.5 * (", "1.0 * (", "factor 1/2"),
        (" + L_value", "", "L^value is trained"),
        ("L_aux + beta", "beta", "L^aux is missing"),
        ("L_aux = 0.5 * ", "L_aux = ", "L^aux has a factor 1/2"),
        ("L_value = 0.5 * ", "L_value = ", "L^value has a factor 1/2"),
        ("square().mean()", "square().sum()", "not sums"),
        ("beta_clone * kl", "kl", "beta_clone weighs"),
        ("+ beta_clone", "- beta_clone", "a penalty"),
        ("beta_clone * ", "0 * ", "which is missing"),
        ("gence(old_logits, logits) ", "gence(logits, old_logits) ", "the old logits first"),
        ("(old_logits - logits)", "(logits - old_logits)", "the wrong way round"),
        (".sum(-1).mean()", ".sum(-1)", "return one number"),
        (".sum(-1).mean()", ".sum(-1).mean().item()", "as a tensor"),
        ("gence(old_logits, logits) ", "gence(old_logits, logits).detach() ", "reaches logits"),
        ("+ L_value", "+ L_value.detach()", "reaches values"),
        ("(values - returns).square()", "((values - returns) * (values - returns).detach())",
         "is a part of it detached"),
        ("(old_logits - logits)", "(old_logits.log() - logits)", "NaN"),
        ("old_logits.exp() *", "old_logits *", "gives the probabilities"),
        ("(old_logits - logits)", "(old_logits - logits).abs()", "no absolute value"),
        ("return (old", "old_logits -= 0.1\n    return (old", "kl_divergence changes a tensor"),
        ("    L_aux =", "    returns -= 0.1\n    L_aux =", "auxiliary_loss changes a tensor"),
        ("aux_values - returns", "aux_values[:, None] - returns", "are (B, B)"),
        ("+ L_value", "- L_value", "L^value is added"),
        ("    return (old", "    (old", "kl_divergence returns nothing"),
        ("    return L_aux", "    L_aux", "auxiliary_loss returns nothing"),
        ("square()", "abs()", "no mistake that this check knows"),
    ],
    "05_ppg_from_ppo": [
        (BUFFER, ROLLED, "WHOLE trajectories"),
        ("_rollouts)", "_rollouts)[:-1]", "5 steps in each of 3 epochs"),
        (PERMUTATION, "torch.arange(len(obs))", "shuffle anew"),
        (PERMUTATION, "torch.randint(len(obs), (len(obs),))", "visits every"),
        (PERMUTATION, RANDOM, "the check replaces it"),
        (STEP, "", "never called"),
        ("L_aux + ", "", "L^aux is missing"),
        (" + args.vf_true_weight * L_value", "", "L^value is missing"),
        ("args.vf_true_weight * ", "", "vf_true_weight weighs"),
        ("returns[inds]", "returns[: len(inds)]", "of the same states"),
        ("returns[inds].flatten()", "returns[inds].reshape(-1, 1)", "returns (B, 1) are (B, B)"),
        ("L_aux = 0.5 * ", "L_aux = ", "L^aux has a factor 1/2"),
        ("L_value = 0.5 * ", "L_value = ", "L^value has a factor 1/2"),
        (".square().mean()", ".square().sum()", "a mean over the minibatch"),
        (BACKWARD + STEP, BACKWARD[34:] + STEP + BACKWARD[:34], "leaves gradients behind"),
        (BACKWARD, BACKWARD[34:], "leaves gradients behind"),
        ("optimizer.zero_grad()", "metrics or optimizer.zero_grad()", "two minibatches add up"),
        ("optimizer.zero_grad()", "len(metrics) % 2 or optimizer.zero_grad()", "add up"),
        (BACKWARD, BACKWARD[34:] + BACKWARD[:34], "cleared before step()"),
        (OLD_LOGITS, OLD_LOGITS_MOVED, "computed ONCE"),
        ("old_logits[inds]", "old_logits[: len(inds)]", "index states and old logits alike"),
        ("old.exp() * (old - logits)", "old.exp() * (logits - old)", "the KL is positive"),
        ("with torch.no_grad()", "if True", "torch.no_grad()"),
        ("args.beta_clone * KL + ", "", "the KL is missing"),
        ("old.exp() * (old - logits)", "logits.exp() * (logits - old)", "weigh by the OLD"),
        ("args.beta_clone * ", "", "beta_clone weighs"),
        (".sum(-1).mean()", ".sum()", "not their sum"),
        (".sum(-1).mean()", ".mean()", "sum over the actions"),
        ('"kl_loss": KL', '"kl_loss": args.beta_clone * KL', "without their weights"),
        (" and iteration < num_iterations", "", "LAST iteration"),
        ("range(1, num_iterations + 1)", "range(num_iterations)", "range(1, num_iterations + 1)"),
        ("iteration % args.n_pi", "(iteration - 1) % args.n_pi", "count from 1"),
        (CAT, '{"obs": obs, "returns": returns}', "of all n_pi iterations"),
        ("torch.cat(", "torch.stack(", "not torch.stack"),
        (CAT, CAT_TIME, "along dimension 0"),
        ("torch.cat(", "list(", "no lists"),
        (".clone()", "", "overwritten by the next"),
        (CLEAR, "", "empty the buffer"),
        (PHASE, NEW_ADAM + PHASE, "live on from phase to phase"),
        ("torch.optim.Adam(", "torch.optim.AdamW(", "the optimizer is Adam"),
        ("args.aux_learning_rate", "args.learning_rate", "a step size of its own"),
        ("agent.parameters()", "agent.aux_value_head.parameters()", "all of the agent"),
        ("agent.parameters()", "__import__('copy').deepcopy(agent).parameters()", "all of the"),
        ("eps=1e-8", "eps=1e-8, weight_decay=0.1", "without weight decay"),
        ("eps=1e-8", "eps=1e-8, maximize=True", "the loss is minimized"),
        (PHASE + "agent, ", PHASE + "None, ", "called with the agent"),
        ("iteration % args.n_pi == 0 and", "iteration < 0 and", "no phase took place"),
        ("            loss.backward()\n", "", "loss.backward() is missing"),
        ("            loss.backward()\n", TWICE, "backward() is called twice"),
        ("obs[inds].flatten(0, 1)", "obs[inds].flatten(0, 1).float()", "leave the type of obs"),
        ("    return metrics", "    pass", "auxiliary_phase returns nothing"),
        ('"kl_loss": KL', '"kl": KL', "dictionaries with the keys aux_value_loss, kl_loss"),
        (CAT, "torch.cat(stored_obs), torch.cat(stored_returns)", "is a dictionary with the keys"),
        (CAT, CAT.replace('"returns"', '"return"'), "is a dictionary with the keys"),
        (CAT, CAT.replace("cat(stored_obs)", "cat(stored_obs, 1)"), "obs: (n_pi * N, T"),
        (OLD_LOGITS, OLD_LOGITS_TAKEN, "write it yourself"),
    ],
    "06_old_policy": [
        ("args.e_aux):\n", 'args.e_aux):\n        buffer["old_logits"] = ppg_procgen.'
         "old_policy_logits(agent, buffer, args)\n", "pi_old still moves"),
        ("metrics += ", "metrics = ", "all gradient steps"),
        ("    return metrics", "", "right_loop returns nothing"),
        ("args)\n    for", "args).roll(1, 0)\n    for", "change nothing else"),
    ],
    "08_kl_direction": [
        ("KL_OLD_NEW = ", "KL_OLD_NEW = 1 / 2 or ", "the FIRST policy's"),
        ("KL_NEW_OLD = ", "KL_NEW_OLD = 5 / 8 or ", "the FIRST policy's"),
        ("KL_NEW_OLD = ", "KL_NEW_OLD = -1 / 2 or ", "ln of the first minus"),
        ("KL_OLD_NEW = ", "KL_OLD_NEW = 5 / 32 or ", "no mean over 4"),
        ("KL_OLD_NEW = ", "KL_OLD_NEW = 5 / 8 * 0.6931471805599453 or ", "units of ln 2"),
        ("KL_OLD_NEW = ", "KL_OLD_NEW = 0.3 or ", "probability x halvings"),
        ("KL_OLD_NEW = ", "KL_OLD_NEW = 0.433 or ", "units of ln 2"),
        ("KL_OLD_NEW = ", "KL_OLD_NEW = 11 / 8 or ", "a doubling counts -1"),
        ("KL_NEW_OLD = ", "KL_NEW_OLD = 1 or ", "a doubling counts -1"),
        ("KL_OLD_NEW = ", "KL_OLD_NEW = '5/8' or ", "without quotes"),
        ("ESTIMATE = 1 / 2 * ", "ESTIMATE = ", "the factor 1/2"),
        ("ESTIMATE = ", "ESTIMATE = 5 / 8 or ", "weigh by OLD"),
        ("ESTIMATE = ", "ESTIMATE = 3 / 4 or ", "no mean over 4"),
        ("ESTIMATE = ", "ESTIMATE = 1 or ", "(number of halvings)^2"),
        ("ESTIMATE = ", "ESTIMATE = 19 / 16 * 0.6931471805599453**2 or ", "units of (ln 2)^2"),
        ("ESTIMATE = ", "ESTIMATE = 11 / 16 or ", "square the number"),
        ("ESTIMATE = ", "ESTIMATE = 5 / 16 or ", "square the number"),
        ('NEAR = "equal"', 'NEAR = "nearly"', "NEAR is one of"),
    ],
    "09_ablations": [
        ("0.95 * last_step", "0.999 * last_step", "the last row alone"),
        (FINAL_MEAN, f"    return max({RETURNS} for row in rows)\n{FINAL_MEAN}", "the maximum"),
        ("0.95 * last_step", "0 * last_step", "not of the last 5 %"),
        (END, "end = rows[-len(rows) // 20 :]", "of the ROWS"),
        (' and int(row["value"]) == value', "", "AND this value"),
        ('row["parameter"] == parameter and ', "", "AND this value"),
        ("    return sum(float", "    sum(float", "final_mean returns nothing"),
        ("return math.sqrt", "math.sqrt", "spread returns nothing"),
        ('("n_pi", 4, 8): True', '("n_pi", 4, 8): "True"', "without quotes"),
        ('("n_pi", 4, 8): True', '("n_pi", 4, 8): 0.09', "without quotes"),
        ("FAR_APART = True", "FAR_APART = False", "the rule does call it a finding"),
        (' and row["mode"] == "hard"', "", "choose the rows with mode hard"),
        ('row["algorithm"] == algorithm and ', "", "rows of this algorithm"),
        ("hard_", "easy_", "easy levels have other constants"),
        (WIDTH, "width = 1", "divide each deviation"),
        (' - float(game["hard_min"])', "", "divide each deviation"),
        (MEAN, "return sum(s**0.5 for s in squares) / len(squares)", "varies less than one game"),
        (MEAN, "return (sum(squares) / len(squares)) ** 0.5", "varies less than one game"),
        ('"e_aux": 6', '"e_aux": 9', "default of e_aux"),
    ],
    "10_open": [
        ("(0, 3, 6)", "(3,)", "at least two arms"),
        ("(0, 3, 6)", "(3, 2.5)", "refuses the command: "),
        ("python ppg_procgen.py", "ppg", "starts with"),
        ("--env-id starpilot", "--env-id pong", "refuses the command: --env-id pong"),
        ("ppg_procgen.py", "ppo_procgen.py", "refuses the command: Unrecognized"),
        ("--env-id starpilot", "--seed 1", "the seeds stand in PLAN"),
        ("--env-id starpilot", "--help", "--help runs nothing"),
        ("1e6 ", "{1 + epochs}e6 ", "equal step budgets"),
        ("--e-aux {epochs}", "--e-aux 6", "nothing is compared"),
        ("1e6 ", "128 ", "so few steps"),
        ("--e-aux {epochs}", "--env-id {['maze', 'miner', 'ninja'][epochs // 3]}", "two games"),
        ("--e-aux {epochs}", "--checkpoint-interval {epochs}", "checkpoint_interval has nothing"),
        ("--e-aux {epochs}", "--num-threads {epochs}", "num_threads has nothing"),
        ('"arms": ', '"arms": ["python ppg_procgen.py"] or ', "arms is a dictionary"),
        ("[1, 2, 3]", '"1,2,3"', "a list of numbers"),
        ("[1, 2, 3]", "[[1], [2], [3]]", "a list of numbers"),
        ("1e6 ", "{'1e6' if epochs else '3e5'} ", "equal step budgets"),
        ("--env-id starpilot", "--env-id 'starpilot", "not a command: No closing"),
        ('"metric": ', '"metrics": ', "has lost its key 'metric'"),
        ('f"{epochs} epochs": ', "epochs: ", "names are text"),
        ("--e-aux {epochs}", "--start-level {epochs}", "no effect without num_levels"),
        ("--e-aux {epochs}", "--e-aux 0 --beta-clone {epochs}", "no effect: with e_aux 0"),
        ("--e-aux {epochs}", "--e-aux {epochs // 6}", "are the same run"),
        ("--e-aux {epochs}", "--clip-coef 0.{epochs + 1} --kl-penalty {epochs}", "differ in ["),
        ("--e-aux {epochs}", "--num-minibatches 1 --minibatch-by {'steps' if epochs else "
         "'trajectories'}", "the only minibatch holds everything"),
        ("charts/episodic_return", "losses/policy_loss", "does not tell what was learned"),
        ("--e-aux {epochs}", "--distribution-mode {'hard' if epochs else 'easy'}", "easy and hard"),
        ("--e-aux {epochs}", "--e-aux {epochs} --e-pi {epochs + 1}", "['e_pi', 'e_aux']"),
        ("--n-pi 8", "--n-pi 100", "no auxiliary phase"),
        ("[1, 2, 3]", "[1, 2]", "at least three seeds"),
        ("[1, 2, 3]", "[1, 2, 2]", "the same run twice"),
        ("[1, 2, 3]", "[1, 2, -3]", "--seed -3"),
        ("charts/episodic_return", "episode return", "no scalar is called"),
        ("charts/episodic_return", "losses/aux/kl_loss", "it has no auxiliary phase"),
        ("charts/episodic_return", "charts/test_episodic_return", "without --num-test-envs"),
        ("charts/episodic_return", "charts/SPS", "does not tell what was learned"),
        ('"hypothesis": "', '"hypothesis": "" and "', "write a sentence"),
        ('"refuted_if": ', f'"refuted_if": "{REPEATED}" or ', "you repeat it"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said"),
    [(name, *mistake) for name, mistakes in MISTAKES.items() for mistake in mistakes],
)
def test_likely_mistake_is_named(name, right, wrong, said):
    heard = []
    for complaint in complaints(solve(load(name), answers_of(name, right, wrong))):
        heard.append(complaint)
        if said in complaint:
            return
    pytest.fail(f"{said!r} is not said, but {heard}")


@pytest.mark.parametrize(
    ("name", "right", "other"),
    [
        ("03_numbers", "math.log(15)", "2.71"),
        (
            "04_joint_loss",
            "    return (old_logits.exp() * (old_logits - logits)).sum(-1).mean()",
            "    from torch.distributions import Categorical, kl_divergence\n"
            "    pair = (Categorical(logits=x) for x in (old_logits, logits))\n"
            "    return kl_divergence(*pair).mean()",
        ),
        ("01_gae", "return advantages", "import torch; return torch.tensor(advantages)"),
        ("01_gae", "return advantages", "return reversed(advantages[::-1])"),
        ("01_gae", "return advantages", "import numpy; return numpy.float32(advantages)"),
        (
            "05_ppg_from_ppo",
            "torch.stack([agent(trajectory)[0] for trajectory in obs])",
            "torch.stack([agent(trajectory)[0].float() for trajectory in obs])",
        ),
        ("05_ppg_from_ppo", "torch.cat(stored_returns)}", "torch.cat(stored_returns), 'n': 1}"),
        ("05_ppg_from_ppo", "            auxiliary_phase(", "            [] + auxiliary_phase("),
        (
            "05_ppg_from_ppo",
            "(agent.parameters(),",
            "([{'params': [x]} for x in agent.parameters()],",
        ),
        ("08_kl_direction", "KL_OLD_NEW = ", "KL_OLD_NEW = 0.63 or "),
        (
            "06_old_policy",
            "ppg_procgen.old_policy_logits(agent, buffer, args)",
            'ppg_procgen.torch.stack([agent(o)[0].detach() for o in buffer["obs"]])',
        ),
        ("10_open", "python ppg", "python -u ppg"),
        ("10_open", "python ppg", "/usr/bin/python3 ppg"),
        ("10_open", "python ppg", "CUDA_VISIBLE_DEVICES=0 python ppg"),
        ("10_open", "python ppg", "torchrun --nproc-per-node 4 ppg"),
        ("10_open", "[1, 2, 3]", "range(5)"),
    ],
)
def test_other_solution_passes(name, right, other):
    assert not list(complaints(solve(load(name), answers_of(name, right, other))))


@pytest.mark.parametrize(
    "commands",
    [
        ["ppo_procgen.py --total-timesteps 1e6", "ppg_procgen.py --n-pi 8 --total-timesteps 1e6"],
        ["ppo_procgen.py", "ppo_procgen.py --anneal-lr"],
        ["ppg_procgen.py", "ppg_procgen.py --clip-coef 0 --kl-penalty 1"],
        [f"ppg_procgen.py --arch {arch}" for arch in ("dual", "shared", "detach")],
    ],
)
def test_other_plans_are_sound(commands):
    plan = answers_of("10_open")["PLAN"]
    plan |= {"arms": {command: f"python {command}" for command in commands}}
    assert not list(complaints(solve(load("10_open"), {"PLAN": plan})))


@pytest.mark.parametrize(
    ("flag", "metric"),
    [
        ("gamma", "value_loss"),
        ("gae-lambda", "explained_variance"),
        ("clip-coef", "clipfrac"),
    ],
)
def test_scalars_that_measure_something_else_in_each_arm(flag, metric):
    plan = answers_of("10_open")["PLAN"] | {"metric": f"losses/{metric}"}
    plan |= {"arms": {x: f"python ppo_procgen.py --{flag} {x}" for x in ("0.9", "0.8")}}
    (said,) = complaints(solve(load("10_open"), {"PLAN": plan}))
    assert "is of something else in each arm" in said
    plan |= {"metric": "charts/episodic_return"}
    assert not list(complaints(solve(load("10_open"), {"PLAN": plan})))


def test_wrong_guess_does_not_print_the_answer(tmp_path):
    """Of a failed comparison, pytest prints both sides, and the arguments of functions."""
    guesses = {
        "03_numbers": "def gradient_steps(*_): return 241",
        "06_old_policy": "DISTANCE = 'less'",
        "08_kl_direction": "ESTIMATE, NEAR, FAR = 1, 'half', 'too small'",
        "09_ablations": "DEFAULT = {'n_pi': 33}",
    }
    for name, lines in guesses.items():
        text = (EXERCISES / f"{name}.py").read_text("utf-8")
        text = text.replace("__file__", repr(str(EXERCISES / name)))
        (tmp_path / f"{name}.py").write_text(f"{text}\n{lines}\n")
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tmp_path.iterdir()]
    shutil.copy(EXERCISES / "conftest.py", tmp_path)
    path = {"PYTHONPATH": str(EXERCISES.parents[1])}
    said = subprocess.run(run, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True)
    for hint in "how many iterations", "DISTANCE, measured", "ESTIMATE: ", "FAR: ", "--help tells":
        assert hint in said.stdout
    for answer in "== 240", "'more'", "1.1875", "'equal'", "'either'", "== 32", "def ", "assert ":
        assert answer not in said.stdout
    assert "not written yet" in said.stdout


def test_error_in_the_readers_code_shows_its_place(tmp_path):
    """And no more than that; an assert without words is not taken for a stub."""
    lines = "def test_error():\n    1 / 0\n\n\ndef test_bare():\n    assert not 1, ''\n"
    (tmp_path / "test_it.py").write_text(lines)
    shutil.copy(EXERCISES / "conftest.py", tmp_path)
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"]
    said = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "test_it.py:2: in test_error" in said and "not written" not in said
    assert "an assert fails" in said


def test_page_shows_each_exercise_with_its_own_solution_folded():
    page = (EXERCISES.parent / "exercises.md").read_text("utf-8")
    boxes = re.findall(r"^::::\{exercise\} .*?`(\w+)\.py`\n(.*?)^::::$", page, re.M | re.S)
    assert [name for name, _ in boxes] == NAMES
    for name, box in boxes:
        folded = re.findall(r"^:::\{dropdown\} (.*?)\n(.*?)^:::$", box, re.M | re.S)
        task, hint, solution = (text for _, text in folded)
        assert f"{{literalinclude}} exercises/{name}.py\n:end-before: " in task
        assert "literalinclude" not in hint
        assert f"{{literalinclude}} exercises/solutions/{name}.py\n" in solution
        assert box.count("literalinclude") == 2 and ":open:" not in box
        checks = (EXERCISES / f"{name}.py").read_text().split("---- the checks")
        assert len(checks) == 2 and "def test_" not in checks[0]
        assert set(re.findall(r"exercises/(\w+).py", checks[0])) <= {name}


def test_scalars_of_exercise_7_do_not_name_the_faults(capsys):
    exercise = runpy.run_path(str(EXERCISES / "07_name_the_bug.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert all(said.count(f"\n{run} ") == 11 for run in [*exercise["ANSWERS"], "healthy"])
    assert not [fault for fault in exercise["FAULTS"] if fault in said]


def test_wrong_bug_is_answered_with_its_sign():
    """Every other fault, named for a run, is refused with what it would show."""
    exercise, right = load("07_name_the_bug"), answers_of("07_name_the_bug")["ANSWERS"]
    for letter in right:
        for fault in set(exercise.FAULTS) - {right[letter]}:
            solve(exercise, {"ANSWERS": right | {letter: fault}})
            (said,) = complaints(exercise)
            scalar, words, _ = exercise.SIGNS[fault]
            assert f"run {letter} " in said and scalar in said and words in said
