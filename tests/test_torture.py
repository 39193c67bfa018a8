"""Runs that are killed with SIGKILL at 20 random moments of their life, and resumed each time."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import ppg_procgen
import ppo_procgen
from test_resume import ENV, ITERATION, ROOT, SMALL, assert_same_run, run_dir

KILLS = 20
RUNS = {"ppo": (ppo_procgen, 1), "ppg": (ppg_procgen, 1), "ppg, 2 workers": (ppg_procgen, 2)}


def command(module, workers, flags):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
    return [
        sys.executable,
        *(torchrun if workers > 1 else []),
        str(ROOT / f"{module.__name__}.py"),
        *flags,
    ]


def kill(process):
    """SIGKILL to the process and, with several workers, to each of them."""
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    for pid in children.stdout.split():
        subprocess.run(["kill", "-9", pid], check=False)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_20_times(name, tmp_path):
    module, workers = RUNS[name]
    flags = f"{SMALL} --total-timesteps {100 * ITERATION * workers} --checkpoint-interval 1".split()
    if module is ppg_procgen:
        flags += "--n-pi 3 --e-aux 3 --aux-minibatch-rollouts 8".split()
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    out = dict(env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    subprocess.run(command(module, workers, flags), cwd=tmp_path / "whole", check=True, **out)

    moments, kills, reached = random.Random(1), 0, []
    while True:
        process = subprocess.Popen(
            command(module, workers, flags), cwd=tmp_path / "killed", text=True,
            env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        lines, wait = [], moments.randint(1, 7)  # for so many reports
        for line in process.stdout:
            lines.append(line)
            wait -= line.startswith("step ")
            if kills < KILLS and wait == 0:
                time.sleep(moments.uniform(0, 0.3))  # into the games, an update, a checkpoint, ...
                kill(process)
                kills += 1
                reached.append(int(re.search(r"step ([\d,]+)", line)[1].replace(",", "")))
                break
        else:
            assert process.wait() == 0, "".join(lines)
            break
        if list(run_dir(tmp_path / "killed").glob("*.pt")):
            flags = ["--resume", str(run_dir(tmp_path / "killed"))]
        else:
            shutil.rmtree(tmp_path / "killed" / "runs")
    assert kills == KILLS and len(set(reached)) > KILLS / 2
    for rank in range(workers):
        assert_same_run(tmp_path / "killed", tmp_path / "whole", rank)
