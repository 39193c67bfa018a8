"""The benchmark's programs do what they say; the longer checks run in CI only."""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import ppg_procgen
import ppo_procgen
from tiny_env import TinyEnv

BENCHMARK = Path(__file__).parents[1] / "benchmark"
EXPERIMENTS = [file for file in sorted(BENCHMARK.glob("*.sh")) if "EXPERIMENT=" in file.read_text()]
ENV = os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


# ----------------------------------------------------------------- Row 40: the experiments' scripts


def dry_run(script, **settings):
    command = ["sh", str(script), "--dry-run"]
    return subprocess.run(
        command, env=ENV | settings, check=True, capture_output=True, text=True
    ).stdout.splitlines()


@pytest.mark.parametrize("script", EXPERIMENTS, ids=[script.stem for script in EXPERIMENTS])
def test_every_command_is_accepted(script, tmp_path):
    lines = dry_run(script, GAMES="coinrun maze", SEEDS="1 2", RUNS_DIR=str(tmp_path))
    assert lines and not list(tmp_path.iterdir())
    for line in lines:
        python, path, *flags = shlex.split(line)
        assert python == sys.executable and Path(path).parent == BENCHMARK.parent
        module = {"ppo_procgen.py": ppo_procgen, "ppg_procgen.py": ppg_procgen}[Path(path).name]
        args = module.parse_args(flags)
        assert args.env_id in ("coinrun", "maze") and args.seed in (1, 2)
        if "hard" in script.stem or "ablation" in script.stem:
            assert (args.distribution_mode, args.total_timesteps) == ("hard", 10**8)
            assert (args.num_envs, args.minibatch_by) == (256, "trajectories")
    assert len(set(lines)) == len(lines)
    count = subprocess.run(
        ["sh", str(script), "--count"], env=ENV | dict(GAMES="coinrun maze", SEEDS="1 2"),
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert int(count.stdout) == len(lines)


def test_every_experiment_of_the_paper_is_there():
    flags = "\n".join(line for script in EXPERIMENTS for line in dry_run(script, GAMES="coinrun"))
    for experiment in (
        *[f"--n-pi {x}" for x in (2, 4, 8, 16, 32)],
        *[f"--e-pi {x}" for x in (1, 2, 3, 4, 5, 6)],
        *[f"--e-aux {x}" for x in (1, 2, 3, 6, 9)],
        "--clip-coef 0 --kl-penalty 1",
        "--arch detach",
        "--num-levels 200",
        "--num-levels 500",
        "--e-pi 3 --e-v 3 --e-aux 0",  # appendix B
        "--vf-true-weight 0 --e-v 7",  # appendix C
        *[f"--update-epochs {x}" for x in (1, 2, 3, 4, 5, 6)],  # appendix D
    ):
        assert experiment in flags, experiment


def test_slurm_submits_one_task_per_job():
    script = ["sh", str(BENCHMARK / "slurm.sh"), str(BENCHMARK / "ppg_easy.sh"), "--gres=gpu:1"]
    env = ENV | dict(SBATCH="echo", GAMES="coinrun", SEEDS="1 2 3")
    out = subprocess.run(script, env=env, check=True, capture_output=True, text=True).stdout
    assert "--array=0-2" in out and "--signal=USR1@300" in out and "--gres=gpu:1" in out


TINY = "--num-envs 4 --num-steps 8 --num-minibatches 4 --no-bf16 --total-timesteps"


def start(command, env, folder):
    """A process as from a terminal: a group of its own, which listens to Ctrl-C."""

    def listen():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    out = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(
        command, env=env, cwd=folder, start_new_session=True, preexec_fn=listen, **out
    )


@pytest.mark.slow
def test_experiment_is_interrupted_and_goes_on(tmp_path):
    """The first of two jobs is stopped by Ctrl-C; started again, both get finished."""
    env = ENV | dict(RUNS_DIR=str(tmp_path / "runs"), FLAGS=f"{TINY} 2000 --checkpoint-interval 1")
    command = ["sh", str(BENCHMARK / "laptop.sh")]
    process = start(command, env, tmp_path)
    log = tmp_path / "runs" / "laptop" / "ppo" / "starpilot" / "1" / "log.txt"
    while not (log.exists() and "step 64," in log.read_text()):
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    assert "to go on" in log.read_text() and not (log.parent / "finished").exists()
    again = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "--resume" in again.stdout.splitlines()[0]
    for name in "ppo", "ppg":
        job = tmp_path / "runs" / "laptop" / name / "starpilot" / "1"
        assert (job / "finished").exists() and "finished 2,016 steps" in (
            job / "log.txt"
        ).read_text()
        assert len(list((job / "runs").iterdir())) == 1
        assert not list(job.glob("runs/*/auxiliary_*"))
    third = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert third.returncode == 0 and third.stdout.count(": finished\n") == 2
    other = env | dict(FLAGS=f"{TINY} 4000 --checkpoint-interval 1")
    fourth = subprocess.run(command, env=other, cwd=tmp_path, capture_output=True, text=True)
    assert fourth.returncode == 1 and fourth.stderr.count("was begun with other flags") == 2


def test_failed_jobs_are_listed(tmp_path):
    env = ENV | dict(RUNS_DIR=str(tmp_path), FLAGS="--num-envs 0")
    result = subprocess.run(
        ["sh", str(BENCHMARK / "laptop.sh")], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 1
    failed = result.stderr[result.stderr.index("failed:") :].split()[1:]
    assert failed == ["laptop/ppo/starpilot/1", "laptop/ppg/starpilot/1"]
    assert "--num-envs 0: must be" in result.stderr
    again = subprocess.run(  # of which no run is left, so that the flags may be corrected
        ["sh", str(BENCHMARK / "laptop.sh"), "--job", "0"], env=env | dict(FLAGS="--num-envs -1"),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "--num-envs -1: must be" in again.stderr


def fake_python(folder, program):
    """Settings with an interpreter that runs this program instead of a script."""
    file = folder / "python"
    file.write_text(f"#!{sys.executable}\nimport os, signal, subprocess, sys, time\n{program}")
    file.chmod(0o755)
    return ENV | dict(PYTHON=str(file), RUNS_DIR=str(folder / "runs"), SEEDS="1", GAMES="maze")


def test_old_interruption_is_not_taken_for_a_new_one(tmp_path):
    """A job that was interrupted once, and now fails: the jobs after it are run."""
    env = fake_python(
        tmp_path,
        """
if os.path.exists("again"):
    print("truncated")
    sys.exit(2)
open("again", "w")
print("stopped; to go on: ...")
sys.exit(143)
""",
    )
    command = ["sh", str(BENCHMARK / "laptop.sh")]
    job, second = tmp_path / "runs/laptop/ppo/maze/1", tmp_path / "runs/laptop/ppg/maze/1"
    first = subprocess.run(command, env=env, capture_output=True, text=True)
    assert first.returncode == 130 and not second.exists() and "failed:" not in first.stderr
    again = subprocess.run(command, env=env, capture_output=True, text=True)
    assert f"{job}: ended with status 2: truncated" in again.stderr and second.exists()
    alone = subprocess.run([*command, "--job", "0"], env=env, capture_output=True, text=True)
    assert alone.returncode == 2  # and slurm.sh does not queue it again


LISTENER = """
def note(*_):
    print("the run ends after this iteration", flush=True)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGUSR1, end)

def end(*_):
    print("ended at once", flush=True)
    os._exit(9)

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
print("step", flush=True)
time.sleep(float(sys.argv[-1]))
signal.signal(signal.SIGINT, note)
signal.signal(signal.SIGUSR1, note)
print("listens", flush=True)
time.sleep(14)
print("stopped; to go on: ...", flush=True)
"""
AS_TORCHRUN = """
if "torch.distributed.run" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    more = dict(start_new_session=True)
    workers = [subprocess.Popen([sys.argv[0], sys.argv[-1]], **more) for _ in range(4)]
    for worker in workers:
        worker.wait()
    print(60 * "about a worker that failed\\n")
    sys.exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "workers", "late", "number", "to_all"),
    [
        ("ppo_easy.sh", 1, 0, signal.SIGINT, True),  # Ctrl-C reaches the run, too
        ("ppo_easy.sh", 1, 3, signal.SIGINT, True),  # which does not listen yet
        ("ppo_easy.sh", 1, 0, signal.SIGTERM, False),
        ("ppo_hard.sh", 4, 0, signal.SIGTERM, False),
        ("ppo_hard.sh", 4, 0, signal.SIGUSR1, True),
    ],
)
def test_signal_reaches_the_run_once(script, workers, late, number, to_all, tmp_path):
    """Whoever gets it, whether or not the run listens already, with torchrun in between or not."""
    env = fake_python(tmp_path, AS_TORCHRUN + LISTENER + "sys.exit(128 + 10)")
    process = start(
        ["sh", str(BENCHMARK / script)], env | dict(WORKERS=str(workers), FLAGS=str(late)), tmp_path
    )
    log = tmp_path / "runs" / script.removesuffix(".sh") / "ppo" / "maze" / "1" / "log.txt"
    sign = "step" if late else "listens"
    while not (log.exists() and log.read_text().count(sign) == workers):
        assert process.poll() is None
        time.sleep(0.1)
    (os.killpg if to_all else os.kill)(process.pid, number)
    _, stderr = process.communicate(timeout=40)
    assert process.returncode == 130 and "failed:" not in stderr
    text = log.read_text()
    assert text.count("the run ends after this iteration") == workers
    assert "ended at once" not in text and text.count("to go on") == workers


def test_settings_that_cannot_be(tmp_path):
    script = str(BENCHMARK / "ppo_hard.sh")
    for settings, flags, said in (
        (dict(WORKERS="3"), [], "WORKERS=3: must be 1, 2, 4, 8 or 16"),
        (dict(SEEDS=" "), [], "GAMES or SEEDS is empty"),
        (dict(VARIANTS="pp"), [], "VARIANTS names none"),
        ({}, ["--job", "abc"], "--job abc: must be a number"),
        ({}, ["--job"], "must be a number"),
        (dict(GAMES="maze", SEEDS="1"), ["--job", "1"], "there is no job 1, the last is 0"),
    ):
        env = ENV | dict(RUNS_DIR=str(tmp_path / "runs")) | settings
        result = subprocess.run(
            ["sh", script, *flags], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        assert result.returncode == 2 and said in result.stderr and result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
    only = dry_run(BENCHMARK / "laptop.sh", VARIANTS="ppg", GAMES="maze", SEEDS="1 2")
    assert len(only) == 2 and all("ppg_procgen.py" in line for line in only)
    link = tmp_path / "linked"
    link.symlink_to(BENCHMARK)
    assert dry_run(link / "ppo_hard.sh") == dry_run(BENCHMARK / "ppo_hard.sh")


# ------------------------------------------------------------------------------------- Evaluation


@pytest.fixture
def programs(monkeypatch):
    """The modules benchmark/evaluate.py and benchmark/report.py."""
    monkeypatch.syspath_prepend(BENCHMARK)
    import evaluate
    import report

    return evaluate, report


class Uneven(TinyEnv):
    """TinyEnv whose first environment has episodes of 2 steps, the others of 20."""

    def _lengths(self):
        return np.where(np.arange(self.num) == 0, 2, 20)

    def get_info(self):
        return [{"prev_level_complete": n == 0} for n in range(self.num)]


def test_long_episodes_count_as_often_as_short_ones(programs, monkeypatch):
    evaluate, _ = programs
    monkeypatch.setattr(ppo_procgen, "make_envs", lambda args: Uneven(args.num_envs, args.seed))
    options = evaluate.Args(run_dir=Path(), episodes=10, num_envs=4, seed=3)
    torch.manual_seed(0)
    agent, args = ppo_procgen.Agent(), ppo_procgen.Args()
    play = [evaluate.play(ppo_procgen, args, agent, options, torch.device("cpu")) for _ in range(2)]
    assert (play[0] == play[1]).all()
    assert sorted(play[0][:, 1]) == [2] * 3 + [20] * 7 and play[0][:, 2].sum() == 3


def test_unseen_levels_are_disjoint(programs):
    evaluate, _ = programs
    args = ppo_procgen.Args(num_levels=200, start_level=50)
    sets = evaluate.level_sets(args)
    unseen = dataclasses.replace(args, **sets["unseen levels"])
    assert sets["training levels"] == {} and unseen.start_level == 250
    assert unseen.start_level + unseen.num_levels == 2**31 - 1
    ppo_procgen.check_args(unseen)
    assert list(evaluate.level_sets(ppo_procgen.Args())) == ["all levels"]


def test_summary(programs):
    evaluate, _ = programs
    results = np.array([[10.0, 100, 1], [20, 200, 0], [30, 300, 1], [64, 400, 1]])
    row = evaluate.summary("x", results, (2.5, 64), 0)
    assert row["mean return"] == 31 and row["median"] == 25 and row["length"] == 250
    assert row["completed"] == 0.75 and row["normalised"] == pytest.approx(28.5 / 61.5)
    assert 10 < row["95 % from"] < 31 < row["to"] < 64
    constant = evaluate.summary("x", np.ones((3, 3)), None, 0)
    assert constant["95 % from"] == constant["to"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])
def test_evaluate_plays_and_films(module, programs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--num-envs 4 --num-steps 8 --num-minibatches 4 --num-levels 20 --total-timesteps 64"
    module.train(module.parse_args(words.split()))
    (run_dir,) = (tmp_path / "runs").iterdir()
    command = [sys.executable, str(BENCHMARK / "evaluate.py"), str(run_dir)]
    flags = "--episodes 5 --num-envs 2 --video-episodes 1 --video".split()
    for film in "film.mp4", "film.gif":
        subprocess.run([*command, *flags, film], env=ENV, check=True, capture_output=True)
        assert (tmp_path / film).stat().st_size > 10_000
    report = json.loads((run_dir / "evaluation.json").read_text())
    assert [row["levels"] for row in report["levels"]] == ["training levels", "unseen levels"]
    assert [row["episodes"] for row in report["levels"]] == [5, 5]
    checkpoint = run_dir / "checkpoint.0.pt"
    checkpoint.rename(run_dir / "previous.0.pt")
    checkpoint.write_bytes(b"damaged")
    assert subprocess.run([*command, "--episodes", "2"], env=ENV, capture_output=True).returncode
    subprocess.run([*command, "--episodes", "2", "--previous"], env=ENV, check=True)
    wrong = subprocess.run([*command[:2], "nothing"], env=ENV, capture_output=True, text=True)
    assert wrong.returncode == 1 and wrong.stderr.count("\n") == 1


# ----------------------------------------------------------------------------------------- Report


def fake_run(folder, module, game, seed, points, **flags):
    """A directory as `train` leaves it: arguments, and a curve of (step, return)."""
    from torch.utils.tensorboard import SummaryWriter

    run_dir = folder / str(len(list(folder.iterdir()) if folder.exists() else []))
    run_dir.mkdir(parents=True)
    flags = {"total_timesteps": points[-1][0], "num_workers": 1} | flags
    workers = {"num_workers": flags.pop("num_workers")}
    args = dataclasses.asdict(module.Args(env_id=game, seed=seed, **flags)) | workers
    (run_dir / "args.json").write_text(json.dumps(args))
    with SummaryWriter(str(run_dir)) as writer:
        for step, value in points:
            writer.add_scalar("charts/episodic_return", value, step)
            writer.add_scalar("charts/SPS", 100.0, step)


HARD = dict(distribution_mode="hard", num_envs=256, minibatch_by="trajectories")


def test_report_compares_like_with_like(programs, tmp_path):
    _, report = programs
    curve = [(65_536, 1.0), (131_072, 2.0), (196_608, 3.0)]
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, curve, **HARD)
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 2, [(s, r + 2) for s, r in curve], **HARD)
    detach = dict(arch="detach", aux_minibatch_rollouts=16)
    fake_run(tmp_path / "runs", ppg_procgen, "coinrun", 1, curve, **HARD, **detach)
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, curve)  # easy
    # Left out: a second run of a seed (4 workers are another way to the same), an unfinished one.
    workers = HARD | dict(num_envs=64, num_workers=4)
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, [(s, 50.0) for s, _ in curve], **workers)
    fake_run(
        tmp_path / "runs", ppo_procgen, "coinrun", 3, curve[:2], total_timesteps=196_608, **HARD
    )
    # Others: fewer steps, whole trajectories on easy levels, 64 environments on hard ones.
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, curve[:2])
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, curve, minibatch_by="trajectories")
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, curve, **HARD | dict(num_envs=64))
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 2, curve, num_workers=2)
    levels = dict(num_levels=200, start_level=50)
    fake_run(tmp_path / "runs", ppo_procgen, "coinrun", 1, curve, **levels)
    # No runs: no episode, half of the flags, another version's flags.
    silent, cut, strange = (tmp_path / "runs" / name for name in ("silent", "cut", "strange"))
    flags = (tmp_path / "runs" / "0" / "args.json").read_text()
    texts = {silent: flags, cut: flags[:50], strange: flags.replace("gamma", "gammas")}
    for folder, text in texts.items():
        folder.mkdir()
        (folder / "args.json").write_text(text)
    report.main(report.Args([tmp_path / "runs"], tmp_path / "out"))
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    rows = {(row["algorithm"], row["mode"]): row for row in found["final"]}
    assert len(found["final"]) == 8
    assert {
        (x["algorithm"], x["levels"]) for x in found["final"] if x["levels"] != "unlimited"
    } == {("ppo", "200 from 50")}
    left_out = "\n".join(row["run"] for row in found["left out"])
    for words in (
        "silent: no episode was logged", "cut: cannot use args.json",
        "they differ in gamma, gammas",
        "4: ppo hard unlimited 196608 coinrun seed 1: is another run of the same",
        "5: ppo hard unlimited 196608 coinrun seed 3: is unfinished",
    ):  # fmt: skip
        assert words in left_out, left_out
    assert len(found["left out"]) == 5
    other = {("ppo --minibatch-by trajectories", "easy"), ("ppo --num-envs 64", "hard")}
    other |= {("ppo --num-workers 2", "easy")}
    assert set(rows) == {("ppo", "hard"), ("ppg-single", "hard"), ("ppo", "easy")} | other
    ppo = rows["ppo", "hard"]
    assert (ppo["seeds"], ppo["return"], ppo["between seeds"]) == (2, 4.0, 1.0)
    # Published for coinrun, hard, at 196,608 steps: 3.9506 +- 0.115. Only that row is in the last
    # tenth; the next test has more of them.
    assert (ppo["at step"], ppo["ours"], ppo["published"]) == ("196,608", 4.0, 3.9506)
    assert ppo["in the band"] == "yes" and rows["ppg-single", "hard"]["in the band"] == "NO"
    easy = {row["in the band"] for row in found["final"] if "in the band" in row} - {"yes", "NO"}
    assert easy == {"another recipe"} and "in the band" not in rows["ppo --num-envs 64", "hard"]
    assert all("missing: bigfish" in row["no mean, because"] for row in found["over 16 games"])
    needed = {row["algorithm"]: row for row in found["steps to PPO's final return"]}
    assert set(needed) == {row["algorithm"] for row in found["final"]}
    assert needed["ppg-single"]["steps"] == "not reached"
    assert needed["ppo"]["steps"] == "196,608"
    lines = (tmp_path / "out" / "curves.csv").read_text().splitlines()
    assert "ppo,hard,unlimited,196608,coinrun,2,episodic_return,196608,5" in lines
    figures = {file.name for file in (tmp_path / "out" / "figures").iterdir()}
    assert figures == {
        f"{x}_{mode}.png" for x in ("coinrun", "all") for mode in ("easy", "hard")
    } | {"published_ablations.png"}


def test_band_is_that_of_the_last_tenth(programs, tmp_path):
    """Two of our points and two published ones count: their means, and the mean deviation."""
    _, report = programs
    run = report.Run("ppo", "hard", "unlimited", 2000, "maze", 1, {}, {})
    run.curves["charts/episodic_return"] = np.array([[1000.0, 1900, 2000], [0, 5, 6]])
    run.curves["charts/SPS"] = np.array([[2000.0], [1.0]])
    published = dict(algorithm="ppo", mode="hard", levels="unlimited", game="maze")
    values = [(1000, 9, 9), (1900, 5.0, 0.2), (2000, 5.6, 0.4), (3000, 9, 9)]
    keys = "step", "return_mean", "return_std"
    rows = [published | dict(zip(keys, map(str, x), strict=True)) for x in values]
    (row,) = report.final_rows({run.group: {"maze": [run]}}, rows)
    assert (row["at step"], row["ours"]) == ("2,000", 5.5)
    assert row["published"] == pytest.approx(5.3) and row["+-"] == pytest.approx(0.3)
    assert row["in the band"] == "yes"


def test_steps_to_the_final_return_of_ppo(programs):
    """By running means over 10 of 100 steps: neither the peak of the start nor one point counts."""
    _, report = programs
    steps = np.arange(2, 101, 2.0)
    faster = np.minimum(steps / 5, 12)
    faster[0], faster[15] = 20, 15
    groups = {
        (name, "hard", "unlimited", 100): {
            "maze": [report.Run(name, "hard", "unlimited", 100, "maze", 1,
                                {"charts/episodic_return": np.array([steps, values])}, {})]
        }
        for name, values in (("ppo", steps / 10), ("ppg", faster))
    }  # fmt: skip
    rows = {row["algorithm"]: row for row in report.efficiency(groups)}
    assert rows["ppo"]["PPO's return"] == pytest.approx(9.6)  # of steps 92 to 100
    assert rows["ppo"]["steps"] == "100" and rows["ppg"]["steps"] == "52"
    groups.pop(("ppg", "hard", "unlimited", 100))
    assert report.efficiency(groups) == []


def test_published_means(programs):
    """As in the paper's figures; for the planned number of steps only."""
    _, report = programs
    rows = report.published("published_curves")
    for name, mean in (("ppo", 0.578), ("ppg", 0.756), ("ppg --n-pi 8", 0.729)):
        group = name, "hard", "unlimited", 100_000_000
        assert report.published_mean(rows, group) == pytest.approx(mean, abs=0.002)
        assert report.published_mean(rows, (*group[:3], 50_000_000)) is None
    assert report.published_mean(rows, ("ppg", "easy", "unlimited", 25_000_000)) is None
    assert 0.3 < report.published_mean(rows, ("ppo", "easy", "200", 25_000_000)) < 1


def test_means_over_16_games(programs, tmp_path):
    """With all 16 games: against numbers worked out here."""
    _, report = programs
    rng, finals = np.random.default_rng(0), {}
    group = "ppo", "easy", "unlimited", 100
    groups = {group: {}}
    for game in report.GAMES:
        finals[game] = rng.uniform(2, 12, 3)
        groups[group][game] = [
            report.Run(*group, game, seed,
                       {"charts/episodic_return": np.array([[1.0, 100.0], [0.0, value]])}, {})
            for seed, value in enumerate(finals[game])
        ]  # fmt: skip
    (row,) = report.aggregates(groups, [], 0)
    lines = (BENCHMARK / "published" / "normalisation.csv").read_text().splitlines()[1:]
    limits = {line.split(",")[0]: [float(x) for x in line.split(",")[1:3]] for line in lines}
    scores = np.sort(
        [(x - limits[g][0]) / (limits[g][1] - limits[g][0]) for g in finals for x in finals[g]]
    )
    assert row["mean"] == pytest.approx(scores.mean())
    assert row["IQM"] == pytest.approx(scores[12:36].mean())
    assert row["optimality gap"] == pytest.approx(np.mean(1 - np.minimum(scores, 1)))
    for name in "mean", "IQM", "optimality gap":
        low, high = map(float, re.findall(r"-?\d\.\d+", row[f"{name} 95 %"]))
        assert low < row[name] < high
    groups[group]["maze"].pop()
    assert "unequal" in report.aggregates(groups, [], 0)[0]["no mean, because"]


@pytest.mark.slow
def test_gpu_check_runs_on_a_cpu(tmp_path):
    """So that it is known to work before a GPU is there."""
    command = ["sh", str(BENCHMARK / "gpu_check.sh"), "--device", "cpu", "--quick"]
    subprocess.run([*command, "--out", str(tmp_path / "gpu")], env=ENV, check=True)
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert len(report["numerics"]) == 18 and len(report["speed"]) == 8
    assert all(row["steps/s"] > 0 for row in report["speed"])
    assert report["learning"]
