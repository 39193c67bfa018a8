"""A run that is stopped at any moment and resumed ends as one that was never stopped."""

import json
import math
import os
import pickle
import random
import re
import shlex
import shutil
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
from run_log import scalars

BOTH = pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])
ROOT = Path(__file__).parents[1]
ENV = os.environ | {"OMP_NUM_THREADS": "1"}
SMALL = "--num-envs 4 --num-steps 8 --num-minibatches 4 --num-threads 0 --num-test-envs 4"
ITERATION = 4 * 8  # steps


def words(module, iterations, more=""):
    flags = f"{SMALL} --total-timesteps {iterations * ITERATION} {more}"
    if module is ppg_procgen:
        flags += " --n-pi 3 --e-aux 2 --aux-minibatch-rollouts 8"
    return flags.split()


def run_dir(folder):
    (path,) = (folder / "runs").iterdir()
    return path


def train(module, folder, argv):
    """Train in a folder."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return module.train(module.parse_args(argv))


def flat(x, name=""):
    """Nested dicts and sequences as {path: leaf}."""
    if isinstance(x, dict):
        items = x.items()
    elif isinstance(x, list | tuple):
        items = enumerate(x)
    else:
        return {name: x}
    return {path: leaf for key, part in items for path, leaf in flat(part, f"{name}/{key}").items()}


def checkpoint(folder, rank=0, name="checkpoint"):
    """Everything in a checkpoint, but which directory the run was resumed from."""
    leaves = flat(torch.load(run_dir(folder) / f"{name}.{rank}.pt", weights_only=True))
    del leaves["/args/resume"]
    return leaves


def differing(ours, theirs):
    """Names of what differs between two checkpoints."""
    assert ours.keys() == theirs.keys()
    return [
        name
        for name, value in theirs.items()
        if not (torch.equal(ours[name], value) if torch.is_tensor(value) else ours[name] == value)
    ]


def assert_same_run(folder, reference, rank=0):
    """Weights, moments, statistics, games, random numbers, counters and all scalars are equal."""
    ours, theirs = checkpoint(folder, rank), checkpoint(reference, rank)
    assert len(ours) > 150 and differing(ours, theirs) == []
    logged, wanted = scalars(folder), scalars(reference)
    assert logged.pop("charts/SPS")[-1][0] == wanted.pop("charts/SPS")[-1][0]
    assert logged == wanted
    assert "charts/test_episodes" in logged


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """script -> folder of a run that was never stopped: 8 iterations, PPG with 2 phases."""
    folders = {}
    for module in ppo_procgen, ppg_procgen:
        folders[module] = tmp_path_factory.mktemp(module.__name__)
        train(module, folders[module], words(module, 8, "--checkpoint-interval 2"))
    return folders


class Killed(BaseException):
    """Stands for a SIGKILL inside one process."""


def killed(function, at_call):
    """The function, which at this call does half its work at most."""
    calls = 0

    def run(*args, **keywords):
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise Killed
        return function(*args, **keywords)

    return run


# ------------------------------------------------------------------------- Rows 30, 31: resumption

CUTS = [("policy_phase", 2), ("policy_phase", 6), ("explained_variance", 8)]
PPG_CUTS = [("old_policy_logits", 1), ("auxiliary_epoch", 2), ("auxiliary_epoch", 3)]
PPG_CUTS += [("minibatches", 5), ("policy_phase", 4), ("policy_phase", 7)]


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [(ppo_procgen, *cut) for cut in CUTS] + [(ppg_procgen, *cut) for cut in PPG_CUTS],
)
def test_resumed_run_is_the_uninterrupted_one(module, name, call, reference, tmp_path):
    argv = words(module, 8, "--checkpoint-interval 2")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, name, killed(getattr(module, name), call))
        train(module, tmp_path, argv)
    if call == 2 and name == "policy_phase":  # before the first checkpoint
        with pytest.raises(module.UsageError, match="there is no checkpoint"):
            train(module, tmp_path, ["--resume", str(run_dir(tmp_path))])
        return
    torch.manual_seed(12345)
    random.seed(12345)
    np.random.seed(12345)
    train(module, tmp_path, ["--resume", str(run_dir(tmp_path))])
    assert_same_run(tmp_path, reference[module])


@BOTH
def test_longer_run_is_the_one_planned_longer(module, reference, tmp_path):
    """Seven iterations, then one more; a run's end is a checkpoint, whatever the interval."""
    train(module, tmp_path, words(module, 7, "--checkpoint-interval 2"))
    steps = str(8 * ITERATION)
    train(module, tmp_path, ["--resume", str(run_dir(tmp_path)), "--total-timesteps", steps])
    ours, theirs = checkpoint(tmp_path), checkpoint(reference[module])
    del ours["/checkpoints"], theirs["/checkpoints"]  # one more
    assert differing(ours, theirs) == []
    logged, wanted = scalars(tmp_path), scalars(reference[module])
    del logged["charts/SPS"], wanted["charts/SPS"]
    assert logged == wanted
    assert json.loads((run_dir(tmp_path) / "args.json").read_text())["total_timesteps"] == 256


def test_no_auxiliary_phase_over_rollouts_that_are_gone(tmp_path):
    """Row 31: the files are deleted, or a later phase has overwritten them."""
    train(ppg_procgen, tmp_path, words(ppg_procgen, 5, "--checkpoint-interval 2"))
    path, longer = run_dir(tmp_path), ["--total-timesteps", "320"]
    iterations = torch.from_file(str(path / "auxiliary_iterations.0"), True, 3, dtype=torch.int64)
    assert iterations.tolist() == [4, 5, 3]
    iterations[1] = 8
    del iterations
    with pytest.raises(ppg_procgen.UsageError, match=r"auxiliary_.*overwritten"):
        train(ppg_procgen, tmp_path, ["--resume", str(path), *longer])
    before = sorted(path.iterdir())
    for name in "obs", "returns", "iterations":
        file = path / f"auxiliary_{name}.0"
        whole = file.read_bytes()
        for spoil in file.unlink, lambda: file.write_bytes(whole[:-1]):  # noqa: B023
            spoil()
            with pytest.raises(ppg_procgen.UsageError, match=rf"{file.name}: is missing or cut"):
                train(ppg_procgen, tmp_path, ["--resume", str(path), *longer])
        file.write_bytes(whole)
    assert sorted(path.iterdir()) == before  # a refusal leaves nothing behind


def test_more_auxiliary_epochs_than_steps(tmp_path):
    """Nothing is logged twice, even then."""
    flags = "--num-envs 4 --num-steps 1 --num-minibatches 1 --n-pi 1 --e-aux 6 --total-timesteps"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        name = "policy_phase"
        patch.setattr(ppg_procgen, name, killed(ppg_procgen.policy_phase, 4))
        train(ppg_procgen, tmp_path, [*flags.split(), "20"])
    train(ppg_procgen, tmp_path, ["--resume", str(run_dir(tmp_path))])
    steps = [step for step, _ in scalars(tmp_path)["losses/policy_loss"]]
    assert steps == [4, 8, 12, 16, 20]


def test_no_command_that_cannot_work(tmp_path, monkeypatch, capsys):
    """Stopped within a phase whose rollouts are kept nowhere, PPG promises nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ppg_procgen, "SIGNALS", [signal.SIGTERM])
    monkeypatch.setattr(ppg_procgen.signal, "signal", lambda *_: None)
    for interval, said in ("0", "no auxiliary buffer is kept"), ("5", "to go on: python"):
        argv = [*words(ppg_procgen, 8), "--checkpoint-interval", interval, "--exp-name", interval]
        monkeypatch.setattr(sys, "argv", ["ppg_procgen.py", *argv])
        assert ppg_procgen.main() == 128 + signal.SIGTERM
        assert said in capsys.readouterr().err


def test_run_that_planned_no_phase_cannot_get_one(tmp_path):
    train(ppg_procgen, tmp_path, words(ppg_procgen, 2))
    with pytest.raises(ppg_procgen.UsageError, match="kept no auxiliary buffer"):
        resume = ["--resume", str(run_dir(tmp_path)), "--total-timesteps", "320"]
        train(ppg_procgen, tmp_path, resume)
    # The refusal has changed nothing: without the flag, the run is as finished as it was.
    train(ppg_procgen, tmp_path, resume[:2])
    assert checkpoint(tmp_path)["/iteration"] == 2


@BOTH
def test_speed_counts_new_steps_only(module, reference, tmp_path, monkeypatch):
    """Row 30."""
    shutil.copytree(reference[module] / "runs", tmp_path / "runs")
    seen = []
    monkeypatch.setattr(module, "log", lambda *args: seen.append(args))
    clock = iter(range(10**6))
    monkeypatch.setattr(module.time, "time", lambda: next(clock))
    more = ["--resume", str(run_dir(tmp_path)), "--total-timesteps", str(9 * ITERATION)]
    train(module, tmp_path, more)
    ((_, values, _, step),) = [args for args in seen if "charts/SPS" in args[1]]
    assert step == 9 * ITERATION and values["charts/SPS"] <= ITERATION


# ----------------------------------------------------------- Row 32: killed while a file is written


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [(ppo_procgen, "fsync", call) for call in (3, 4, 5)]
    + [(ppg_procgen, "replace", call) for call in (6, 7, 8)],
)
def test_kill_during_the_write_leaves_a_checkpoint(module, name, call, reference, tmp_path):
    argv = words(module, 8, "--checkpoint-interval 2")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module.os, name, killed(getattr(os, name), call))
        train(module, tmp_path, argv)
    train(module, tmp_path, ["--resume", str(run_dir(tmp_path))])
    assert_same_run(tmp_path, reference[module])


@BOTH
def test_previous_checkpoint_is_kept(module, reference):
    last, previous = checkpoint(reference[module]), checkpoint(reference[module], 0, "previous")
    assert last["/checkpoints"] == previous["/checkpoints"] + 1
    assert last["/iteration"] == 8 and previous["/iteration"] == 6


# --------------------------------------------------------------- Row 34: files that cannot be used


def refusal(module, argv):
    with pytest.raises(module.UsageError) as refused:
        module.train(module.parse_args([str(word) for word in argv]))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def copy(reference, tmp_path):
    """script -> a copy of its run, which a test may spoil."""
    paths = {}
    for module, folder in reference.items():
        shutil.copytree(run_dir(folder), tmp_path / module.__name__)
        paths[module] = tmp_path / module.__name__
    return paths


LONGER = ["--total-timesteps", 10 * ITERATION]


class Harm:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@BOTH
def test_unusable_checkpoints_are_refused(module, copy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = copy[module] / "checkpoint.0.pt"
    whole = file.read_bytes()
    for size in 0, 10, len(whole) // 2, len(whole) - 1:
        file.write_bytes(whole[:size])
        assert "checkpoint.0.pt: is truncated" in refusal(
            module, ["--resume", copy[module], *LONGER]
        )
    for harm in Harm(), {"args": Harm()}:
        torch.save(harm, file)
        text = refusal(module, ["--resume", copy[module], *LONGER])
        assert "holds other things" in text
        file.write_bytes(pickle.dumps(harm))
        refusal(module, ["--resume", copy[module], *LONGER])
    torch.save([1, 2], file)
    assert "is no checkpoint" in refusal(module, ["--resume", copy[module], *LONGER])
    assert not (tmp_path / "harmed").exists()
    file.unlink()
    (copy[module] / "previous.0.pt").unlink()
    assert "there is no checkpoint" in refusal(module, ["--resume", copy[module], *LONGER])


@BOTH
def test_run_of_another_script_is_refused(module, copy):
    (other,) = set(copy) - {module}
    text = refusal(module, ["--resume", copy[other], *LONGER])
    assert "--resume" in text and f"no run of {module.__name__}.py" in text
    shutil.copy(copy[other] / "checkpoint.0.pt", copy[module])
    assert f"no run of {module.__name__}.py" in refusal(module, ["--resume", copy[module], *LONGER])


def test_checkpoint_of_another_architecture_is_refused(copy):
    file = copy[ppg_procgen] / "args.json"
    file.write_text(file.read_text().replace('"arch": "dual"', '"arch": "detach"'))
    text = refusal(ppg_procgen, ["--resume", copy[ppg_procgen], *LONGER])
    assert "--arch detach: the run has dual" in text


@BOTH
@pytest.mark.parametrize(
    "flags", ["--seed 2", "--num-envs 8", "--env-id coinrun", "--bf16", "--learning-rate 1e-3"]
)
def test_flags_that_may_not_change_are_refused(module, flags, copy):
    text = refusal(module, ["--resume", copy[module], *flags.split()])
    assert text.startswith(flags.split()[0]) and "the run has" in text
    assert "total-timesteps" in text and "checkpoint-interval" in text


@BOTH
def test_no_run_to_resume(module, tmp_path):
    assert "args.json" in refusal(module, ["--resume", tmp_path / "nothing"])
    for text in "{", "[]", "null", "3", "{}":
        (tmp_path / "args.json").write_text(text)
        assert "--resume" in refusal(module, ["--resume", tmp_path])
    assert "--resume :" in refusal(module, ["--resume", ""])  # an unset variable of a shell


@BOTH
def test_flags_of_the_wrong_type(module, copy):
    file = copy[module] / "args.json"
    file.write_text(file.read_text().replace('"num_envs": 4', '"num_envs": "x"'))
    assert "args.json" in refusal(module, ["--resume", copy[module], *LONGER])


@BOTH
def test_reader_of_the_output_stops_first(module, tmp_path):
    """Ctrl-C also ends `tee`: the checkpoint is written all the same."""
    script = ROOT / f"{module.__name__}.py"
    flags = shlex.join([*words(module, 500), "--checkpoint-interval", "0"])
    line = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {flags} 2>&1 | tee log"
    process = subprocess.Popen(["sh", "-c", line], cwd=tmp_path, env=ENV, start_new_session=True)
    while not ((tmp_path / "log").exists() and "step 64," in (tmp_path / "log").read_text()):
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    process.wait()
    deadline = time.time() + 30
    while not (run_dir(tmp_path) / "checkpoint.0.pt").exists():
        assert time.time() < deadline
        time.sleep(0.1)


# ------------------------------------------------------------------------------ Rows 29, 33: ends


@BOTH
def test_divergence_keeps_the_last_good_checkpoint(module, tmp_path, monkeypatch):
    """Row 29."""
    explained_variance = module.explained_variance

    def diverge(*args):
        return (
            math.nan
            if (run_dir(tmp_path) / "checkpoint.0.pt").exists()
            else explained_variance(*args)
        )

    monkeypatch.setattr(module, "explained_variance", diverge)
    with pytest.raises(FloatingPointError, match=f"explained_variance.*step {3 * ITERATION}"):
        train(module, tmp_path, words(module, 8, "--checkpoint-interval 2"))
    assert checkpoint(tmp_path)["/iteration"] == 2


def start(module, folder, argv):
    """A run in a process of its own, that has reached its second iteration."""
    command = [sys.executable, str(ROOT / f"{module.__name__}.py"), *argv]
    out = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen(command, cwd=folder, env=ENV, **out)
    for line in process.stdout:
        if line.startswith("step "):
            return process
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize(
    ("module", "name"),
    [(ppo_procgen, "SIGINT"), (ppg_procgen, "SIGTERM"), (ppg_procgen, "SIGUSR1")],
)
def test_signal_ends_a_run_that_goes_on(module, name, reference, tmp_path):
    """Row 33: with a checkpoint and the command that resumes, which this test runs."""
    number = getattr(signal, name)
    process = start(module, tmp_path, words(module, 8, "--checkpoint-interval 2"))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"{name}: the run ends after this iteration" in stderr
    command = re.search(r"to go on: python (.*)$", stderr, re.M).group(1)
    assert checkpoint(tmp_path)["/iteration"] >= 1
    argv = [sys.executable, *shlex.split(command)]
    subprocess.run(argv, cwd=tmp_path, env=ENV, check=True, capture_output=True, timeout=120)
    if checkpoint(tmp_path)["/iteration"] % 2:  # one checkpoint more than without the signal
        return
    ours, theirs = checkpoint(tmp_path), checkpoint(reference[module])
    del ours["/checkpoints"], theirs["/checkpoints"]
    assert differing(ours, theirs) == []


@BOTH
def test_run_that_is_going_on_is_not_resumed(module, tmp_path):
    """Two processes would overwrite each other's files. One that was killed is in nobody's way."""
    process = start(module, tmp_path, words(module, 4000, "--checkpoint-interval 1"))
    said = refusal(module, ["--resume", run_dir(tmp_path)])
    assert str(run_dir(tmp_path)) in said and "another process" in said
    process.kill()
    process.communicate(timeout=60)
    module.lock(run_dir(tmp_path))


@BOTH
def test_second_signal_ends_a_run_at_once(module, tmp_path):
    argv = [*words(module, 4), "--num-steps", "8000", "--total-timesteps", "64000"]
    command = [sys.executable, str(ROOT / f"{module.__name__}.py"), *argv]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, text=True)
    next(line for line in process.stdout if line.startswith("written to"))
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError(28, "No space left on device", "x.new"), 1, "No space left on device: 'x.new'"),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), 1, "--micro-batch-size"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "--micro-batch-size"),
        (RuntimeError("unable to mmap: Cannot allocate memory (12)"), 1, "--micro-batch-size"),
        (OSError(27, "File too large"), 1, "File too large"),
        (MemoryError(), 1, "--micro-batch-size"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
)
@BOTH
def test_ends_without_a_traceback(module, error, status, said, monkeypatch, capsys):
    """Row 36 and the full disk: one line each."""

    def fail(args):
        raise error

    monkeypatch.setattr(module, "train", fail)
    monkeypatch.setattr(sys, "argv", ["script"])
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert module.main() == status
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == bool(said)


@pytest.mark.parametrize(
    "error", [RuntimeError("shape mismatch"), OSError(98, "Address already in use")]
)
@BOTH
def test_other_errors_are_raised_unchanged(module, error, monkeypatch):
    """Row 36."""

    def fail(args):
        raise error

    monkeypatch.setattr(module, "train", fail)
    monkeypatch.setattr(sys, "argv", ["script"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(type(error)) as raised:
        module.main()
    assert raised.value is error


@BOTH
def test_disk_full_during_a_checkpoint_keeps_the_last(module, tmp_path, monkeypatch):
    fsync, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if (run_dir(tmp_path) / "checkpoint.0.pt").exists():
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        train(module, tmp_path, words(module, 8, "--checkpoint-interval 2"))
    assert checkpoint(tmp_path)["/iteration"] == 2


# ------------------------------------------------------------- Held-out levels, clips, interval 0


@BOTH
def test_held_out_levels_change_nothing_in_training(module, reference, tmp_path):
    argv = words(module, 8, "--checkpoint-interval 2")
    train(module, tmp_path, [*argv, "--num-test-envs", "0"])
    ours, theirs = checkpoint(tmp_path), checkpoint(reference[module])
    del ours["/args/num_test_envs"], theirs["/args/num_test_envs"]
    assert differing(ours, {name: theirs[name] for name in ours}) == []
    assert "charts/test_episodes" not in scalars(tmp_path)


@BOTH
def test_held_out_levels_are_all_levels(module, monkeypatch):
    made = []

    def make_envs(args):
        made.append(args)

    monkeypatch.setattr(module, "make_envs", make_envs)
    args = module.Args(num_levels=200, start_level=3, num_test_envs=5, seed=7)
    module.HeldOutGames(args, torch.device("cpu"))
    (args,) = made
    assert (args.num_levels, args.start_level, args.num_envs) == (0, 0, 5) and args.seed != 7


@BOTH
def test_clips_are_written(module, tmp_path):
    import imageio

    train(module, tmp_path, words(module, 3, "--capture-video"))
    files = sorted((run_dir(tmp_path) / "clips").iterdir())
    assert [file.name for file in files] == ["32.gif", "64.gif", "96.gif"]
    frames = imageio.mimread(files[0])
    assert len(frames) == 4 and frames[0].shape[:2] == (128, 128)


@BOTH
def test_interval_0_writes_at_the_end_only(module, tmp_path, monkeypatch):
    writes, save = [], module.save_checkpoint
    monkeypatch.setattr(
        module, "save_checkpoint", lambda *args: (writes.append(args[-1]["iteration"]), save(*args))
    )
    train(module, tmp_path, words(module, 5, "--checkpoint-interval 0"))
    assert writes == [5] and not list(run_dir(tmp_path).glob("auxiliary*"))
