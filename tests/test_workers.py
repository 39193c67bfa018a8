"""Two workers under torchrun train one agent as one process with twice the environments does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import ppg_procgen
import ppo_procgen
from golden_recipe import segment
from run_log import scalars

BOTH = pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])
ROOT = Path(__file__).parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENV = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
SMALL = "--num-envs 8 --num-steps 16 --num-minibatches 4".split()


def update(module, part=slice(None)):
    """Weights and what is logged after one update of a new agent on a part of a fixed rollout."""
    torch.manual_seed(0)
    agent = module.Agent()
    batch = {name: x[part] for name, x in segment(1, 8, 4).items()}
    normalizer = module.RewardNormalizer(len(batch["returns"]))
    rewards = normalizer(batch["returns"], torch.zeros_like(batch["returns"]))
    batch["advantages"] = module.normalize(batch["advantages"])
    sgd = torch.optim.SGD(agent.parameters(), lr=0.1)
    optimizers = dict.fromkeys(("policy", "value", "aux"), sgd)
    one_step = dict(update_epochs=1) if module is ppo_procgen else dict(aux_minibatch_rollouts=8)
    args = module.Args(num_minibatches=1, **one_step)
    metrics = module.means(module.policy_phase(agent, optimizers, batch, args), "")
    if module is ppg_procgen:
        buffer = {name: batch[name] for name in ("obs", "returns")}
        buffer["old_logits"] = module.old_policy_logits(agent, buffer, args)
        metrics |= module.means(module.auxiliary_epoch(agent, sgd, buffer, args), "aux_")
    metrics["explained_variance"] = module.explained_variance(rewards, batch["returns"])
    return [weight.detach() for weight in agent.parameters()], metrics


PROGRAM = """
import sys, torch, torch.distributed as dist
from importlib import import_module
from test_workers import update
module = import_module(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
assert module.NUM_WORKERS == 2
half = slice(0, 4) if module.RANK == 0 else slice(4, 8)
torch.save(update(module, half), f"{sys.argv[2]}/{module.RANK}.pt")
dist.destroy_process_group()
"""


@BOTH
def test_two_workers_compute_what_one_does(module, tmp_path):
    """Gradients, advantage moments, reward statistics and metrics are of both workers."""
    (tmp_path / "program.py").write_text(PROGRAM)
    program = [str(tmp_path / "program.py"), module.__name__, str(tmp_path)]
    subprocess.run(TORCHRUN + program, env=ENV, check=True, timeout=120)
    weights, metrics = update(module)
    torch.manual_seed(0)
    initial = list(module.Agent().parameters())
    for rank in 0, 1:
        worker_weights, worker_metrics = torch.load(tmp_path / f"{rank}.pt")
        assert worker_metrics.keys() == metrics.keys()
        for name, value in metrics.items():
            assert worker_metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
        for start, ours, want in zip(initial, worker_weights, weights, strict=True):
            assert (ours - want).norm() <= 1e-3 * (want - start).norm()


@BOTH
def test_run_of_two_workers(module, tmp_path):
    """One plan, one run directory; steps and episodes of both workers."""
    flags = [*SMALL, "--total-timesteps", "768"]
    flags += ["--n-pi", "1", "--e-aux", "1"] if module is ppg_procgen else []
    result = subprocess.run(
        [*TORCHRUN, module.__file__, *flags],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "iterations: 3 of 2 workers x 8 x 16 steps (768 steps" in result.stdout
    assert result.stdout.count("finished 768 steps") == 1
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert len(list(run_dir.glob("events*"))) == 1
    assert [step for step, _ in scalars(tmp_path)["losses/policy_loss"]] == [256, 512, 768]


@BOTH
def test_workers_have_seeds_of_their_own(module, monkeypatch):
    """Within Procgen's 32 bits; a single process keeps --seed."""
    for seed in 1, 2**31 - 1:
        seeds = []
        for rank in range(4):
            monkeypatch.setattr(module, "RANK", rank)
            seeds.append(module.worker_seed(module.Args(seed=seed)))
        assert seeds[0] == seed and len(set(seeds)) == 4
        assert all(0 <= worker_seed < 2**31 for worker_seed in seeds)


def test_refusal_is_said_once(tmp_path):
    result = subprocess.run(
        [*TORCHRUN, ppo_procgen.__file__, "--env-id", "StarPilot"],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode != 0
    assert result.stderr.count("did you mean starpilot?") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_run_ends_when_a_worker_dies(tmp_path):
    run = subprocess.Popen(
        [*TORCHRUN, ppo_procgen.__file__, *SMALL],
        cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        for line in run.stdout:
            if line.startswith("step"):
                break
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        workers = [
            pid for pid in children if b"ppo_procgen" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert len(workers) == 2
        os.kill(int(workers[1]), signal.SIGKILL)
        assert run.wait(timeout=60) != 0
        time.sleep(1)
        assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    finally:
        run.kill()


@pytest.mark.slow
def test_workers_go_on_from_the_last_checkpoint_in_common(tmp_path):
    """Killed at the renames of a checkpoint, twice, one worker has a newer one than the other."""

    def launch(flags):
        script = str(ROOT / "ppg_procgen.py")
        command = [*TORCHRUN, script, *flags]
        return subprocess.run(command, cwd=tmp_path, env=ENV, capture_output=True, text=True)

    tiny = "--num-envs 4 --num-steps 8 --num-minibatches 4 --n-pi 2 --e-aux 1".split()
    flags = [*tiny, "--checkpoint-interval", "1", "--aux-minibatch-rollouts", "4"]
    assert launch([*flags, "--total-timesteps", str(3 * 64)]).returncode == 0
    (path,) = (tmp_path / "runs").iterdir()

    def iteration(rank):
        return torch.load(path / f"checkpoint.{rank}.pt", weights_only=True)["iteration"]

    for steps, behind in (4, 1), (5, 0):
        os.replace(path / f"previous.{behind}.pt", path / f"checkpoint.{behind}.pt")
        assert iteration(behind) == iteration(1 - behind) - 1 == steps - 2
        result = launch(["--resume", str(path), "--total-timesteps", str(steps * 64)])
        assert result.returncode == 0, result.stderr
        assert iteration(0) == iteration(1) == steps

    (path / "auxiliary_obs.1").unlink()
    result = launch(["--resume", str(path), "--total-timesteps", str(7 * 64)])
    assert result.returncode and result.stderr.count("auxiliary_obs.1: is missing or cut") == 1
    result = subprocess.run(
        [sys.executable, str(ROOT / "ppg_procgen.py"), "--resume", str(path)],
        cwd=tmp_path, env=ENV, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 2 and "has 2 workers, not 1" in result.stderr
