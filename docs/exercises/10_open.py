"""Exercise 10: an experiment of your own. As long as you like.

Write the plan before the first run: what you ask, what you expect, and which result would prove you
wrong. Fill in PLAN; then: python -m pytest docs/exercises/10_open.py

The checks accept any sound plan: the scripts take the commands, the arms differ in one thing that
may change what is learned (clipping against the KL penalty, which needs two flags, is one), each
has the same number of steps and at least three seeds, and the metric is one that is logged. They do
not judge your sentences: let somebody read them.
docs/start.md has commands for a laptop. An auxiliary phase takes place after every n_pi x num_envs
x num_steps steps, if more follow: a short run needs a smaller --n-pi.
"""

import math
import re
import runpy
import shlex
from dataclasses import asdict
from pathlib import Path

import ppg_procgen
import ppo_procgen

PLAN = {
    "question": None,  # a sentence
    "hypothesis": None,  # what you expect, and why
    "arms": None,  # name -> command without --seed, as "python ppg_procgen.py --env-id coinrun ..."
    "seeds": None,  # a list of numbers: every arm runs with each of them
    "metric": None,  # a scalar's name, as TensorBoard shows it, such as "losses/entropy"
    "refuted_if": None,  # the result of the metric that would refute the hypothesis
}

# ------------------------------------------------------------------------------------- the checks

SCRIPTS = {"ppo_procgen.py": ppo_procgen, "ppg_procgen.py": ppg_procgen}
METRICS = runpy.run_path(str(Path(ppg_procgen.__file__).parent / "docs" / "explanations.py"))
METRICS = METRICS["METRICS"].keys()
LAUNCHERS = "python", "torchrun", "uv"
# Flags and scalars that have nothing to do with what is learned.
NO_LEARNING = ppg_procgen.MAY_CHANGE | {"torch_deterministic", "cuda", "compile"}
NO_LEARNING |= {"micro_batch_size", "num_threads", "num_test_envs"}
NO_LEARNING -= {"total_timesteps"}  # which budgets are compared by
AUXILIARY = {"n_pi", "beta_clone", "vf_true_weight", "aux_learning_rate", "aux_minibatch_rollouts"}
INCOMPARABLE = {
    "env_id": "returns of two games are not comparable: compare within a game",
    "distribution_mode": "returns of easy and hard levels are not comparable: compare within one",
}
NOTHING_LEARNED = "charts/SPS", "charts/learning_rate", "charts/episodes", "losses/policy_loss"
KINDS = {
    "arms": (dict, "a dictionary: name -> command"),
    "seeds": ((list, tuple, range), "a list of numbers, such as [1, 2, 3]"),
}


def planned(name):
    assert name in PLAN, f"PLAN has lost its key {name!r}"
    if PLAN[name] is None:
        raise NotImplementedError(f"fill in {name}")
    kind, words = KINDS.get(name, (str, "text in quotes"))
    assert isinstance(PLAN[name], kind), f"{name} is {words}"
    return PLAN[name]


def flags_of(name, command, seed=None):
    """Script and flags of an arm's command, as the script itself reads and checks them."""
    assert isinstance(command, str), f"{name}: a command is text in quotes"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise AssertionError(f"{name}: not a command: {error}") from None
    place = next((i for i, word in enumerate(words) if Path(word).name in SCRIPTS), None)
    start = [word for word in words[:place] if not re.match(r"\w+=", word)]  # without variables
    hint = f"{name}: the command starts with `python ppo_procgen.py` or `python ppg_procgen.py`"
    assert place and start and Path(start[0]).name.startswith(LAUNCHERS), hint
    script, flags = Path(words[place]).name, words[place + 1 :]
    assert not {"-h", "--help"} & set(words), f"{name}: --help runs nothing"
    module = SCRIPTS[script]
    refused = ""
    try:
        extra = [] if seed is None else ["--seed", str(seed)]
        args = module.read_flags(flags + extra, module.Args())
        module.check_args(args)
    except module.UsageError as error:
        no_procgen = str(error).startswith("Procgen is not installed")  # so it cannot run HERE
        refused = "" if no_procgen else str(error)
    assert not refused, f"{name}: {script} refuses the command: {refused}"
    assert args.resume is None, f"{name}: every run starts anew, without --resume"
    workers = re.findall(r"--(?:nnodes|nproc[-_]per[-_]node)[= ](\d+)", " ".join(words[:place]))
    return script, asdict(args) | {"num_workers": math.prod(map(int, workers))}


def arms():
    """Name -> (script, flags)."""
    commands = planned("arms")
    assert all(isinstance(name, str) for name in commands), "the arms' names are text in quotes"
    assert len(commands) >= 2, "an experiment compares: at least two arms"
    for name, command in commands.items():
        assert "--seed" not in command, f"{name}: the seeds stand in PLAN, the same for every arm"
    return {name: flags_of(name, command) for name, command in commands.items()}


def rollout_steps(flags):
    return flags["num_workers"] * flags["num_envs"] * flags["num_steps"]


def iterations(flags):
    return math.ceil(flags["total_timesteps"] / rollout_steps(flags))


def test_arms_have_equal_budgets():
    steps = {name: iterations(flags) * rollout_steps(flags) for name, (_, flags) in arms().items()}
    hint = "equal step budgets, please (runs are rounded up to whole rollouts)"
    assert len(set(steps.values())) == 1, f"{hint}: {steps}"
    hint = "so few steps teach nothing: at least 100e3, better 300e3 or more"
    assert min(steps.values()) >= 100_000, f"{hint}: {steps}"


def test_arms_differ_in_one_flag():
    runs = list(arms().values())
    names = {name: None for _, flags in runs for name in flags if name != "exp_name"}
    differ = [  # flags that only one of the scripts has belong to the script
        name for name in names if len({flags[name] for _, flags in runs if name in flags}) > 1
    ]
    if len({script for script, _ in runs}) > 1:
        differ.append("the script")
    assert differ, "the arms are the same: nothing is compared"
    penalty = any(not flags["clip_coef"] for _, flags in runs)
    if set(differ) == {"clip_coef", "kl_penalty"} and penalty:
        return  # one limit to the policy's steps, or the other
    one = len(differ) == 1
    assert one, f"the arms differ in {differ}: which of them made the difference?"
    (name,) = differ
    assert name not in INCOMPARABLE, INCOMPARABLE.get(name)
    teaches = name not in NO_LEARNING
    assert teaches, f"{name} has nothing to do with what is learned"
    flags = [flags for _, flags in runs]
    some_levels = name != "start_level" or all(x["num_levels"] for x in flags)
    assert some_levels, "start_level has no effect without num_levels"
    several = name != "minibatch_by" or any(x["num_minibatches"] > 1 for x in flags)
    assert several, "minibatch_by has no effect: the only minibatch holds everything"
    phases = name not in AUXILIARY or any(x.get("e_aux") for x in flags)
    assert phases, f"{name} has no effect: with e_aux 0 there is no auxiliary phase"


def test_no_two_arms_are_the_same():
    runs = arms()
    for i, name in enumerate(runs):
        same = [other for other in list(runs)[:i] if runs[other] == runs[name]]
        assert not same, f"{same[0]} and {name} are the same run"


def test_auxiliary_phases_take_place():
    for name, (script, flags) in arms().items():
        if script == "ppg_procgen.py" and flags["e_aux"]:
            enough = iterations(flags) > flags["n_pi"]
            assert enough, f"{name}: no auxiliary phase, it ends before n_pi iterations are over"


def test_seeds():
    seeds = planned("seeds")
    numbers = all(isinstance(seed, int) for seed in seeds)
    assert numbers, "seeds is a list of numbers, such as [1, 2, 3]"
    assert len(set(seeds)) == len(seeds), "the same seed twice is the same run twice"
    assert len(seeds) >= 3, "at least three seeds: one run says nothing about the spread"
    for name, command in planned("arms").items():
        for seed in seeds:
            flags_of(name, command, seed)


def test_metric():
    metric, runs = planned("metric"), arms()
    assert metric in METRICS, f"no scalar is called {metric!r}: choose from {', '.join(METRICS)}"
    assert metric not in NOTHING_LEARNED, f"{metric} does not tell what was learned"
    for flag, words in ("gamma", "value variance"), ("gae_lambda", "value variance"), (
        "clip_coef", "clipfrac"
    ):  # fmt: skip
        one_scale = len({flags[flag] for _, flags in runs.values()}) == 1
        counts_another_thing = not one_scale and any(word in metric for word in words.split())
        hint = f"{metric} is of something else in each arm: {flag} is a part of what it measures"
        assert not counts_another_thing, hint
    for name, (script, flags) in runs.items():
        aux = metric.startswith("losses/aux/")
        logs_aux = script == "ppg_procgen.py" and flags["e_aux"]
        assert logs_aux or not aux, f"{name}: logs no {metric}, it has no auxiliary phase"
        tested = flags["num_test_envs"] or "/test_" not in metric
        assert tested, f"{name}: logs no {metric} without --num-test-envs"


def test_words():
    for name in "question", "hypothesis", "refuted_if":
        words = planned(name).split()
        assert len(words) >= 5, f"{name}: write a sentence"
    hint = "refuted_if says which result would speak AGAINST the hypothesis; you repeat it"
    refuted_if, hypothesis = (
        re.findall(r"\w+", PLAN[name].lower()) for name in ("refuted_if", "hypothesis")
    )
    assert refuted_if != hypothesis, hint
