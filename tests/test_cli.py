"""The two scripts as their users meet them: flags, refusals, real Procgen runs, files."""

import dataclasses
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement

import ppg_procgen
import ppo_procgen
from run_log import scalars

SMALL = "--num-envs 8 --num-steps 16 --num-minibatches 4"
GAMES = (
    "bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot "
    "heist jumper leaper maze miner ninja plunder starpilot"
).split()
both = pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])
both_once = pytest.mark.parametrize(
    "module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"], scope="module"
)


class Stop(Exception):
    """Ends a run right before its first step."""


class StopEnvs:
    """Stands in for the games where only what is said before the first step matters."""

    def observe(self):
        raise Stop


class ScriptedEnvs:
    """8 games whose episodes all end at the same step, every 4th; rewards differ by game, step."""

    def __init__(self):
        self.t = 0

    def reward(self, t):
        return np.arange(8, dtype=np.float32) + t

    def observe(self):
        obs = np.full((8, 64, 64, 3), self.t % 256, dtype=np.uint8)
        reward = self.reward(self.t) if self.t else np.zeros(8, dtype=np.float32)
        return reward, {"rgb": obs}, np.full(8, self.t % 4 == 0)

    def act(self, actions):
        assert actions.shape == (8,)
        self.t += 1

    def get_state(self):
        return [bytes([n, self.t]) for n in range(8)]

    def close(self):
        pass


def command_line(module, flags):
    """The small settings followed by `flags`, which win; without its own --n-pi, PPG gets 2."""
    words = SMALL.split() + flags.split()
    if module is ppg_procgen and "--n-pi" not in flags:
        words += ["--n-pi", "2"]
    given = {}
    for word in words:
        if word.startswith("--"):
            given[word] = []
            last = given[word]
        else:
            last.append(word)
    return [word for flag, values in given.items() for word in (flag, *values)]


def train(module, flags):
    """Train for real in the current directory."""
    return module.train(module.parse_args(command_line(module, flags)))


def refusal(module, words):
    """The text with which `words` are refused: one line."""
    with pytest.raises(module.UsageError) as refused:
        module.parse_args(words.split())
    text = str(refused.value)
    assert text and "\n" not in text
    return text


def run_script(script, flags, cwd):
    """Run a script as its users do, without the repository on the path."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["OMP_NUM_THREADS"] = "1"
    return subprocess.run(
        [sys.executable, str(script), *flags.split()],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=90,
    )  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------- Rows 1, 2, 3: what is planned


def test_less_than_one_phase_trains_everything_and_says_so(here, capsys):
    """Row 1, a real run with the default --n-pi 32."""
    agent = train(ppg_procgen, "--n-pi 32 --total-timesteps 300")
    out, logged = capsys.readouterr().out, scalars(here)
    start = out[: out.index("step 128")]
    assert "warning: no auxiliary phase" in start and "auxiliary phases: 0," in start
    assert [step for step, _ in logged["losses/policy_loss"]] == [128, 256, 384]
    assert not [tag for tag in logged if "aux" in tag]
    torch.manual_seed(1)
    untrained = ppg_procgen.Agent("dual")
    assert not torch.equal(agent.policy_head.weight, untrained.policy_head.weight)
    assert not torch.equal(agent.value_head.weight, untrained.value_head.weight)


def test_plan_of_100000_steps_with_defaults(here, monkeypatch, capsys):
    """Row 1, the command itself: what it says before its first step."""
    monkeypatch.setattr(ppg_procgen, "make_envs", lambda args: StopEnvs())
    with pytest.raises(Stop):
        ppg_procgen.train(ppg_procgen.parse_args(["--total-timesteps", "100000"]))
    out = capsys.readouterr().out
    assert "iterations: 7 of 64 x 256 steps (114,688 steps" in out
    assert "auxiliary phases: 0," in out
    assert "warning: no auxiliary phase" in out and "524,288" in out


@pytest.fixture(scope="module")
def annealed(module, tmp_path_factory):
    """A run of 600 steps, no multiple of 128 (batch) or 256 (phase): its output and scalars."""
    folder = tmp_path_factory.mktemp("annealed")
    flags = "--anneal-lr --total-timesteps 600"
    if module is ppg_procgen:
        flags += " --e-aux 1 --aux-minibatch-rollouts 8"
    result = run_script(module.__file__, " ".join(command_line(module, flags)), folder)
    assert result.returncode == 0, result.stderr
    return result.stdout, scalars(folder)


@both_once
def test_nothing_is_dropped_silently(annealed, module):
    """Row 2: the plan is printed first, and the log ends where the plan says."""
    out, logged = annealed
    start = out[: out.index("step 128")]
    assert "iterations: 5 of 8 x 16 steps (640 steps" in start
    for tag in "losses/policy_loss", "losses/value_loss", "charts/SPS":
        assert [step for step, _ in logged[tag]] == [128, 256, 384, 512, 640]
    assert "finished 640 steps" in out
    if module is ppg_procgen:
        assert "auxiliary phases: 2," in start
        assert [step for step, _ in logged["losses/aux/kl_loss"]] == [257, 513]


@both_once
def test_annealed_learning_rate_falls_over_the_whole_run(annealed, module):
    """Row 3: no jump back at a phase's end; above zero to the last."""
    rates = [value for _, value in annealed[1]["charts/learning_rate"]]
    assert rates == pytest.approx([5e-4, 4e-4, 3e-4, 2e-4, 1e-4])


def test_every_optimizer_is_annealed(here, monkeypatch):
    """Row 3: the auxiliary optimizer's and the value optimizer's rates fall too."""
    rates, step = {}, ppg_procgen.optimizer_step

    def spy(agent, optimizer, max_grad_norm):
        rates.setdefault(id(optimizer), []).append(optimizer.param_groups[0]["lr"])
        step(agent, optimizer, max_grad_norm)

    monkeypatch.setattr(ppg_procgen, "optimizer_step", spy)
    train(
        ppg_procgen,
        "--n-pi 1 --e-v 2 --e-aux 1 --aux-minibatch-rollouts 8 --num-minibatches 1 "
        "--arch shared --anneal-lr --total-timesteps 384 --aux-learning-rate 1e-3",
    )
    falls = [[x / values[0] for x in dict.fromkeys(values)] for values in rates.values()]
    falls.sort(key=len)
    # The auxiliary phase follows the first two iterations only.
    assert falls[0] == pytest.approx([1, 2 / 3])
    assert falls[1:] == [pytest.approx([1, 2 / 3, 1 / 3])] * 2


# ------------------------------------------------------------------------ Rows 4, 8, 10: numbers


@both
@pytest.mark.parametrize("minibatches", [3, 16])
def test_minibatches_must_divide_environments(module, minibatches):
    """Row 4."""
    text = refusal(module, f"--num-envs 8 --num-minibatches {minibatches}")
    assert f"--num-minibatches {minibatches}" in text and "--num-envs 8" in text


@both
@pytest.mark.parametrize(
    "words",
    [
        "--clip-coef -0.2",
        "--num-envs 0",
        "--learning-rate nan",
        "--gae-lambda 1.01",
        "--total-timesteps 0",
        "--total-timesteps 2.5",
        "--total-timesteps many",
        "--seed 2147483648",
        "--distribution-mode nosuchmode",
        "--no-such-flag 1",
    ],
)
def test_impossible_values_are_refused(module, words, here):
    """Row 8."""
    text, (flag, value) = refusal(module, words), words.split()
    assert flag in text and (value in text or flag == "--no-such-flag")
    assert not list(here.iterdir())


@both
def test_no_number_is_unlimited(module):
    """Row 8, its whole kind: every numeric flag refuses -1; every float, nan and infinity."""
    defaults = module.Args()
    for field in dataclasses.fields(defaults):
        kind, flag = type(getattr(defaults, field.name)), "--" + field.name.replace("_", "-")
        for bad in {int: [-1], float: [-1.0, math.nan, math.inf]}.get(kind, []):
            with pytest.raises(module.UsageError) as refused:
                module.check_args(dataclasses.replace(defaults, **{field.name: bad}))
            assert flag in str(refused.value) and str(bad) in str(refused.value)


@both
def test_train_checks_arguments_too(module, here):
    """Row 8: arguments that no command line made are refused before anything is written."""
    with pytest.raises(module.UsageError, match="--num-steps 0"):
        module.train(module.Args(num_steps=0))
    assert not list(here.iterdir())


@both
def test_scientific_notation(module):
    """Row 10."""
    args = module.parse_args("--total-timesteps 25e6 --num-levels 2e2".split())
    assert (args.total_timesteps, args.num_levels) == (25_000_000, 200)
    assert isinstance(args.total_timesteps, int)


@both
@pytest.mark.parametrize(
    "words, want",
    [
        ("--seed 1.5", "Error parsing --seed: 1.5 is not an integer, such as 25000000 or 25e6"),
        ("--no-such-flag 1", "Unrecognized options: --no-such-flag"),
        ("--seed", "Missing value for argument '--seed'. Expected 1 values."),
    ],
)
@pytest.mark.parametrize("environment", [{"FORCE_COLOR": "1"}, {"COLUMNS": "30"}, {"LC_ALL": "C"}])
def test_refusal_has_no_box_and_no_colour(module, words, want, environment, monkeypatch):
    """Row 8: tyro draws both, each terminal differently."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = refusal(module, words)
    assert want in text and text.endswith(" (see --help)")
    assert not re.search("[\x1b─│╭╰|]|--{7}|helptext", text)


@both
def test_extreme_values_are_refused(module):
    """Row 8, its whole kind: what would overflow later, in torch, in Procgen or in a message."""
    words = [
        "--num-threads 1e5",
        "--total-timesteps 1e18",
        "--num-steps 1e304",
        "--clip-coef 1e300",
    ]
    words += ["--learning-rate 1e300", "--num-steps 1e400", "--exp-name a\nb", "--exp-name \udcff"]
    words += [f"--exp-name {'x' * 201}"]
    for flag, value in (word.split(" ", 1) for word in words):
        with pytest.raises(module.UsageError) as refused:
            module.parse_args([f"{flag}={value}"])
        assert flag in str(refused.value) and "\n" not in str(refused.value)


@both
def test_divergence_stops_the_run_with_step_and_quantity(module, here):
    """Row 29: weights so large, but finite, that the next forward pass is not."""
    flags = "--num-minibatches 1 --learning-rate 1e15 --total-timesteps 300"
    epochs = " --update-epochs 1" if module is ppo_procgen else ""
    with pytest.raises(FloatingPointError, match=r"losses/\w+ is NaN or infinite at step 256"):
        train(module, flags + epochs)


def test_time_left_counts_the_auxiliary_phases(here, capsys, monkeypatch):
    """4 iterations of 4 forward passes per step, after each of the first 3 a phase of 19 more."""
    clock = iter(range(0, 10**6, 4))  # 4 seconds pass between two looks at it
    monkeypatch.setattr(ppg_procgen.time, "time", lambda: next(clock))
    train(ppg_procgen, "--n-pi 1 --total-timesteps 512 --num-minibatches 1")
    line = next(line for line in capsys.readouterr().out.splitlines() if line[:9] == "step 128,")
    hours, minutes, seconds = map(int, line.split(", ")[-1].split(" ")[0].split(":"))
    assert hours == 0
    # As often the 4 seconds that the first 4 passes took as passes are left, or a multiple of it.
    left = 60 * minutes + seconds
    assert left >= 3 * 4 + 3 * 19 and left % (3 * 4 + 3 * 19) == 0


@both
@pytest.mark.parametrize("words", ["--env-id StarPilot", "--num-steps 2.5"])
def test_refusal_on_the_terminal(module, words, tmp_path):
    """A refusal is status 2, one line on standard error and nothing else."""
    result = run_script(module.__file__, words, tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1 and result.stderr.endswith("\n")
    assert words.split()[0] in result.stderr and words.split()[1] in result.stderr
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------- Rows 5, 6: PPG


@pytest.mark.parametrize("arch", ["dual", "shared", "detach"])
@pytest.mark.parametrize("e_pi, e_v", [(2, 1), (1, 2)])
def test_unequal_epochs(here, monkeypatch, arch, e_pi, e_v):
    """Row 5: value epochs first, each loss with an optimizer and gradients of its own."""
    steps, step = [], ppg_procgen.optimizer_step

    def spy(agent, optimizer, max_grad_norm):
        step(agent, optimizer, max_grad_norm)
        grads = [name for name, p in agent.named_parameters() if p.grad is not None]
        steps.append((id(optimizer), {name.split(".")[0] for name in grads}))

    monkeypatch.setattr(ppg_procgen, "optimizer_step", spy)
    flags = f"--arch {arch} --e-pi {e_pi} --e-v {e_v} --num-minibatches 2 --total-timesteps 128"
    train(ppg_procgen, flags)
    first, last = steps[: 2 * e_v], steps[2 * e_v :]
    assert len(last) == 2 * e_pi
    value, policy = first[0][0], last[0][0]
    assert value != policy
    encoder = {"dual": {"value_encoder"}, "shared": {"policy_encoder"}, "detach": set()}[arch]
    assert first == [(value, {"value_head"} | encoder)] * len(first)
    assert last == [(policy, {"policy_head", "policy_encoder"})] * len(last)
    logged = scalars(here)
    assert all(math.isfinite(value) for values in logged.values() for _, value in values)


@pytest.mark.parametrize("flags", ["--e-aux 0", "--beta-clone 0", "--kl-penalty 1 --clip-coef 0"])
def test_terms_that_are_switched_off(here, flags):
    """Row 6: it runs, and no scalar is of a phase that did not happen."""
    aux = "" if "--e-aux" in flags else "--e-aux 1 "
    train(ppg_procgen, f"{aux}{flags} --n-pi 1 --aux-minibatch-rollouts 8 --total-timesteps 256")
    logged = scalars(here)
    assert [step for step, _ in logged["losses/policy_loss"]] == [128, 256]
    assert all(math.isfinite(value) for values in logged.values() for _, value in values)
    aux_tags = {tag for tag in logged if "aux" in tag}
    names = {"kl_loss", "aux_value_loss", "real_value_loss"}
    assert aux_tags == ({f"losses/aux/{name}" for name in names} if aux else set())
    assert all([step for step, _ in logged[tag]] == [129] for tag in aux_tags)


def test_ppo_without_clipping(here):
    """Row 6."""
    train(ppo_procgen, "--clip-coef 0 --update-epochs 1 --total-timesteps 128")
    assert all(math.isfinite(value) for values in scalars(here).values() for _, value in values)


# -------------------------------------------------------------------------- Rows 9, 17, 39: start


@both
def test_help(module, tmp_path):
    """Row 9: quick, quiet, without wandb, without computed sizes, with the paper's symbols."""
    marker = tmp_path / "imported"
    (tmp_path / "wandb.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, module.__file__, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (result.returncode, result.stderr) == (0, "")
    # Processor time: the time on the clock depends on what else the machine does.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3
    assert not marker.exists()
    for computed in "--batch-size", "--minibatch-size", "--num-iterations", "--num-phases":
        assert computed not in result.stdout
    symbols = ["(epsilon", "(gamma", "(lambda", "beta_S", "(N;", "(T;", "steps", "L^value"]
    symbols += ["N_pi", "E_pi", "E_V", "E_aux", "beta_clone"] if module is ppg_procgen else ["(E;"]
    text = " ".join(result.stdout.replace("│", " ").split())
    assert [symbol for symbol in symbols if symbol not in text] == []


@pytest.fixture(scope="module")
def alone(module, tmp_path_factory):
    """A run of a script that was copied alone into an empty folder."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(module.__file__, folder)
    flags = " ".join(command_line(module, "--total-timesteps 128"))
    return folder, run_script(folder / Path(module.__file__).name, flags, folder)


@both_once
def test_script_alone_in_a_folder(alone, module):
    """Row 39."""
    folder, result = alone
    assert result.returncode == 0, result.stderr
    assert scalars(folder)["losses/policy_loss"][-1][0] == 128
    (run_dir,) = (folder / "runs").iterdir()
    assert (run_dir / "args.json").exists()
    assert {path.name for path in folder.iterdir()} == {Path(module.__file__).name, "runs"}


@both_once
def test_no_noise_at_the_start(alone, module):
    """Row 17: the terminal shows what the script says and nothing from its dependencies."""
    _, result = alone
    assert result.stderr == ""
    assert result.stdout.startswith("starpilot, easy, all levels, seed 1, on ")
    starts = (
        "starpilot,",
        "iterations: 1 ",
        "auxiliary phases: 0,",
        "written to",
        "warning: no aux",
        "step ",
    )
    starts += ("finished 128 steps",)
    assert [x for x in result.stdout.splitlines() if not x.startswith(starts)] == []


@pytest.mark.parametrize(
    "python, system, machine, want",
    [
        ("3.10", "linux", "x86_64", "procgen==0.10.7"),
        ("3.10", "win32", "AMD64", "procgen==0.10.7"),
        ("3.10", "darwin", "x86_64", "procgen==0.10.7"),
        ("3.11", "linux", "x86_64", "procgen-mirror==0.10.7"),
        ("3.12", "linux", "x86_64", "procgen-mirror==0.10.7"),
        ("3.13", "linux", "x86_64", "procgen-mirror==0.10.7+needs.python.3.10.to.3.12"),
        ("3.14", "linux", "x86_64", "procgen-mirror==0.10.7+needs.python.3.10.to.3.12"),
        ("3.11", "win32", "AMD64", "procgen-mirror==0.10.7+needs.python.3.10"),
        ("3.12", "darwin", "x86_64", "procgen-mirror==0.10.7+needs.python.3.10"),
        ("3.10", "darwin", "arm64", "procgen-mirror==0.10.7+needs.x86.64"),
        ("3.12", "linux", "aarch64", "procgen-mirror==0.10.7+needs.x86.64"),
    ],
)
def test_requirements_pick_a_build_or_say_what_is_needed(python, system, machine, want):
    """Row 16: the installer stops at the first requirement that it cannot meet."""
    lines = (Path(ppo_procgen.__file__).parent / "requirements.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and line[0] != "#"]
    environment = dict(python_version=python, sys_platform=system, platform_machine=machine)
    builds = [r for r in requirements if r.name.startswith("procgen")]
    assert requirements[: len(builds)] == builds
    first = next(r for r in builds if r.marker.evaluate(environment))
    assert f"{first.name}{first.specifier}" == want


# ------------------------------------------------------------------ Rows 11 to 15, 19: environment


@both
@pytest.mark.parametrize(
    "env_id, suggestion",
    [
        ("StarPilot", "did you mean starpilot?"),
        ("procgen:procgen-starpilot-v0", None),
        ("nosuchgame", None),
        ("coinrum", "did you mean coinrun?"),
    ],
)
def test_unknown_game(module, env_id, suggestion):
    """Row 11."""
    text = refusal(module, f"--env-id {env_id}")
    assert f"--env-id {env_id}" in text
    assert ", ".join(GAMES) in text
    if suggestion:
        assert suggestion in text
    if env_id == "nosuchgame":
        assert "did you mean" not in text


@both
@pytest.mark.parametrize(
    "mode, env_id, allowed",
    [
        ("extreme", "coinrun", "chaser, dodgeball, leaper, starpilot"),
        ("memory", "bigfish", "caveflyer, dodgeball, heist, jumper, maze, miner"),
        ("exploration", "starpilot", "caveflyer, climber, coinrun, heist, jumper, leaper, maze"),
    ],
)
def test_mode_that_a_game_lacks(module, mode, env_id, allowed):
    """Row 12: the games that have the mode, and the modes that the game has."""
    text = refusal(module, f"--distribution-mode {mode} --env-id {env_id}")
    assert f"--distribution-mode {mode}" in text and f"--env-id {env_id}" in text
    assert allowed in text and "easy, hard" in text


@both
@pytest.mark.parametrize("flag, value", [("--num-levels", 200), ("--start-level", 5)])
def test_exploration_has_no_levels(module, flag, value):
    """Row 12."""
    text = refusal(module, f"--distribution-mode exploration --env-id coinrun {flag} {value}")
    assert "--distribution-mode exploration" in text and f"{flag} {value}" in text


@both
def test_exploration_without_levels_is_built(module):
    """Row 12: what is allowed, Procgen accepts."""
    args = module.parse_args("--distribution-mode exploration --env-id coinrun".split())
    envs = module.make_envs(dataclasses.replace(args, num_envs=2))
    assert envs.observe()[1]["rgb"].shape == (2, 64, 64, 3)
    envs.close()


@both
@pytest.mark.parametrize("num_levels, warned", [(0, True), (10, False)])
def test_start_level_without_levels(module, here, monkeypatch, capsys, num_levels, warned):
    """Row 13."""
    monkeypatch.setattr(module, "make_envs", lambda args: StopEnvs())
    with pytest.raises(Stop):
        train(module, f"--num-levels {num_levels} --start-level 500")
    out = capsys.readouterr().out
    assert ("warning: --start-level 500 has no effect" in out) == warned


@both
def test_seed_decides_everything(module, here, monkeypatch):
    """Row 14: equal seeds give equal scalars and weights, another seed does not."""
    flags = "--total-timesteps 256 --no-cuda"
    aux = " --n-pi 1 --e-aux 1 --aux-minibatch-rollouts 8"
    flags += aux if module is ppg_procgen else " --update-epochs 1"
    weights, logged = {}, {}
    for name, seed in ("a", 3), ("b", 3), ("c", 4):
        (here / name).mkdir()
        monkeypatch.chdir(here / name)
        weights[name] = train(module, f"{flags} --seed {seed}").state_dict()
        logged[name] = scalars(here / name)
        assert logged[name].pop("charts/SPS")
    assert len(logged["a"]) > 8 and logged["a"] == logged["b"]
    assert all(torch.equal(x, weights["b"][name]) for name, x in weights["a"].items())
    assert logged["a"]["losses/value_loss"] != logged["c"]["losses/value_loss"]
    name = "policy_head.weight"
    assert not torch.equal(weights["a"][name], weights["c"][name])


@both
def test_seed_decides_the_games(module):
    """Row 14: Procgen gets the seed."""
    images = []
    for seed in 3, 3, 4:
        envs = module.make_envs(module.parse_args(["--num-envs=8", f"--seed={seed}"]))
        images.append(envs.observe()[1]["rgb"].copy())
        envs.close()
    assert (images[0] == images[1]).all()
    assert (images[0] != images[2]).any()


@both
@pytest.mark.parametrize("start_level", [0, 1000])
def test_level_seeds_are_in_range(module, here, monkeypatch, start_level):
    """Row 15: Procgen itself tells the level seed of every step."""
    seeds, make_envs = set(), module.make_envs

    def spied_envs(args):
        envs = make_envs(args)
        act = envs.act

        def spy(actions):
            seeds.update(info["level_seed"] for info in envs.get_info())
            act(actions)

        envs.act = spy
        return envs

    monkeypatch.setattr(module, "make_envs", spied_envs)
    epochs = "--update-epochs 1" if module is ppo_procgen else ""
    levels = f"--num-levels 200 --start-level {start_level}"
    train(module, f"--num-steps 64 --num-minibatches 1 --total-timesteps 512 {levels} {epochs}")
    assert len(seeds) > 4
    assert start_level <= min(seeds) and max(seeds) < start_level + 200


@both
def test_episodes_that_end_together_all_count(module, here, monkeypatch):
    """Row 19: 8 episodes end at every 4th step."""
    monkeypatch.setattr(module, "make_envs", lambda args: ScriptedEnvs())
    flags = "--num-minibatches 1 --total-timesteps 512 --e-aux 0"
    if module is ppo_procgen:
        flags = flags.replace("--e-aux 0", "--update-epochs 1")
    train(module, flags)
    ends, script = range(4, 65, 4), ScriptedEnvs()
    episodes = [sum(script.reward(t)[n] for t in range(end - 3, end + 1))
                for end in ends for n in range(8)]  # fmt: skip
    logged = scalars(here)
    assert logged["charts/episodes"] == [(128, 32), (256, 64), (384, 96), (512, 128)]
    expected = [np.mean(episodes[:count][-100:]) for count in (32, 64, 96, 128)]
    assert [x for _, x in logged["charts/episodic_return"]] == pytest.approx(expected)
    assert [x for _, x in logged["charts/episodic_length"]] == [4, 4, 4, 4]


# ------------------------------------------------------------------------- Rows 37, 38: resources


@both
def test_existing_run_directory_is_not_overwritten(module, here, monkeypatch):
    """Row 37: refused before any game is made."""
    monkeypatch.setattr(module, "make_envs", None)
    monkeypatch.setattr(module.time, "time", lambda: 1234567890.5)
    run_dir = here / "runs" / f"starpilot__{module.Args().exp_name}__1__1234567890"
    run_dir.mkdir(parents=True)
    (run_dir / "args.json").write_text("mine")
    with pytest.raises(module.UsageError) as refused:
        train(module, "--total-timesteps 128")
    text = str(refused.value)
    assert str(run_dir.relative_to(here)) in text and "exists" in text and "\n" not in text
    assert [path.name for path in run_dir.iterdir()] == ["args.json"]
    assert (run_dir / "args.json").read_text() == "mine"


@both
def test_run_directory_that_cannot_be_made(module, here, monkeypatch):
    """Row 37: `runs` is a file, which stops even a user who may write everywhere."""
    monkeypatch.setattr(module, "make_envs", None)
    (here / "runs").write_text("mine")
    with pytest.raises(module.UsageError) as refused:
        train(module, "--total-timesteps 128")
    text = str(refused.value)
    assert f"{Path('runs')}{os.sep}starpilot__" in text and "\n" not in text
    assert (here / "runs").read_text() == "mine"


def test_auxiliary_buffer_larger_than_memory(here, monkeypatch):
    """Row 38: 33 x 64 x 256 images of 12,288 bytes are 6.64 GB."""
    monkeypatch.setattr(ppg_procgen, "memory_size", lambda: 5_000_000_000)
    with pytest.raises(ppg_procgen.UsageError) as refused:
        ppg_procgen.train(ppg_procgen.parse_args([]))
    text = str(refused.value)
    assert "6.64 GB" in text and "5.00 GB" in text and "\n" not in text
    assert "--n-pi 32" in text and "--num-envs" in text and "--num-steps" in text
    assert not list(here.iterdir())


@pytest.mark.parametrize("flags", ["--e-aux 0", "--n-pi 32 --total-timesteps 300"])
def test_memory_that_no_phase_needs_is_not_asked_for(here, monkeypatch, flags):
    """Row 38: no refusal for the buffer of a phase that will not happen."""
    monkeypatch.setattr(ppg_procgen, "memory_size", lambda: 2_000_000)  # a rollout: 1.6 MB
    monkeypatch.setattr(ppg_procgen, "make_envs", lambda args: StopEnvs())
    with pytest.raises(Stop):
        train(ppg_procgen, flags)


@both
def test_rollout_larger_than_memory(module, here, monkeypatch):
    """Row 38, its whole kind: 64 x 256 images of 12,288 bytes are 0.20 GB."""
    monkeypatch.setattr(module, "memory_size", lambda: 100_000_000)
    with pytest.raises(module.UsageError) as refused:
        module.train(module.parse_args(["--total-timesteps", "1000"]))
    text = str(refused.value)
    assert "0.20 GB" in text and "0.10 GB" in text and "\n" not in text
    assert "--num-envs 64" in text and "--num-steps 256" in text
    assert not list(here.iterdir())
