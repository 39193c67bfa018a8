"""Whole runs on a real game: schedule, determinism, and PPG without its phases is PPO."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import ppg_procgen
import ppo_procgen
from run_log import scalars

BOTH = pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])
SMALL = dict(num_envs=8, num_steps=16, num_minibatches=4, num_threads=0)


def run(module, directory, **flags):
    """Train; return the agent and every logged scalar but the speed: {tag: [(step, value)]}."""
    directory.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        agent = module.train(module.Args(**{**SMALL, **flags}))
    logged = scalars(directory)
    del logged["charts/SPS"]
    return agent, logged


def test_ppg_without_phases_is_ppo(tmp_path):
    ppo, ppo_scalars = run(ppo_procgen, tmp_path / "ppo", total_timesteps=512)
    flags = dict(arch="shared", e_pi=3, e_v=3, e_aux=0, total_timesteps=512)
    ppg, ppg_scalars = run(ppg_procgen, tmp_path / "ppg", **flags)
    assert ppo_scalars == ppg_scalars
    ppg_weights = ppg.state_dict()
    for name, weight in ppo.state_dict().items():
        assert torch.equal(weight, ppg_weights[name.replace("encoder", "policy_encoder")]), name


@BOTH
def test_same_seed_same_run(module, tmp_path):
    flags = dict(total_timesteps=384)
    if module is ppg_procgen:
        flags |= dict(n_pi=2, e_aux=1)
    agents = [
        run(module, tmp_path / f"{i}", seed=seed, **flags) for i, seed in enumerate([7, 7, 8])
    ]
    weights = [list(agent.state_dict().values()) for agent, _ in agents]
    assert all(map(torch.equal, weights[0], weights[1]))
    assert not all(map(torch.equal, weights[0], weights[2]))
    assert agents[0][1] == agents[1][1] != agents[2][1]


def test_auxiliary_phases_at_multiples_of_n_pi(tmp_path):
    _, logged = run(ppg_procgen, tmp_path / "a", n_pi=2, e_aux=3, total_timesteps=128 * 6)
    # 6 iterations: after 2 and 4; the budget ends with the sixth.
    steps = [step for step, _ in logged["losses/aux/kl_loss"]]
    assert steps == [257, 258, 259, 513, 514, 515]  # one step for each auxiliary epoch
    assert logged["losses/policy_loss"][-1][0] == 128 * 6


def test_no_scalar_of_a_phase_that_did_not_happen(tmp_path):
    _, logged = run(ppg_procgen, tmp_path / "a", n_pi=1, e_aux=0, total_timesteps=256)
    assert not [tag for tag in logged if "aux" in tag]


def test_learning_rate_falls_over_the_whole_run(tmp_path):
    flags = dict(n_pi=2, e_aux=1, anneal_lr=True, total_timesteps=128 * 5)
    _, logged = run(ppg_procgen, tmp_path / "a", **flags)
    rates = [value for _, value in logged["charts/learning_rate"]]
    assert len(rates) == 5 and rates[0] == pytest.approx(5e-4) and rates[-1] > 0
    assert all(later < earlier for earlier, later in pairwise(rates))


@BOTH
def test_logged_losses_are_means_over_all_gradient_steps(module, tmp_path, monkeypatch):
    phase, seen = module.policy_phase, []
    monkeypatch.setattr(module, "policy_phase", lambda *args: seen.append(phase(*args)) or seen[-1])
    _, logged = run(module, tmp_path / "a", total_timesteps=256)
    for name in "value_loss", "entropy":
        wanted = [sum(float(step[name]) for step in steps) / len(steps) for steps in seen]
        assert len(seen[0]) > 1 and len({float(step[name]) for step in seen[0]}) > 1
        assert [value for _, value in logged[f"losses/{name}"]] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
def test_compiled_run_starts_where_the_old_policy_was(module, bf16, tmp_path):
    """Compiled, rollout and update round differently: the ratio is 1 and the KL 0 within that."""
    flags = dict(total_timesteps=256, num_minibatches=1, learning_rate=0.0, bf16=bf16)
    flags |= (
        dict(update_epochs=1)
        if module is ppo_procgen
        else dict(n_pi=1, e_aux=1, aux_learning_rate=0.0)
    )
    _, logged = run(module, tmp_path / "eager", **flags)
    _, compiled = run(module, tmp_path / "compiled", compile=True, **flags)
    tolerance = 1e-3 if bf16 else 1e-5
    assert abs(compiled["losses/old_approx_kl"][0][1]) < tolerance
    if module is ppg_procgen:
        assert abs(compiled["losses/aux/kl_loss"][0][1]) < tolerance
    for name in "losses/entropy", "losses/value_loss":  # of the same weights, on close states
        (_, want), (_, value) = logged[name][0], compiled[name][0]
        assert value == pytest.approx(want, rel=0.02 if bf16 else 1e-3), name


@BOTH
@pytest.mark.parametrize(
    ("sizes", "limit", "trims"),
    [([100], 150, 0), ([200, 100], 150, 1), ([200, 190], 1.3 * 190, 1)],
    ids=["below", "above", "above, and needed"],
)
def test_memory_is_trimmed_above_the_limit(module, sizes, limit, trims, monkeypatch):
    libc = Mock()
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: libc)
    monkeypatch.setattr(module, "resident_size", iter(sizes).__next__)
    assert module.trim_memory(150) == limit
    assert libc.malloc_trim.call_count == trims


MEMORY_OF_EACH_ROLLOUT = """
import resource, ppo_procgen
minibatches, gae = ppo_procgen.minibatches, ppo_procgen.gae
def spy(*args):
    pages = int(open("/proc/self/statm").read().split()[1])
    print("MB", pages * resource.getpagesize() // 2**20)
    return gae(*args)
ppo_procgen.gae = spy
ppo_procgen.minibatches = lambda *args: minibatches(*args)[:4]  # to save time
flags = dict(distribution_mode="hard", num_envs=256, minibatch_by="trajectories")
flags |= dict(num_minibatches=256, update_epochs=1, total_timesteps=3 * 256 * 256)
ppo_procgen.train(ppo_procgen.Args(**flags, bf16=True, cuda=False, checkpoint_interval=0))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow(tmp_path):
    """The paper's 256 environments: once, freed blocks were not used again, 6 GB in a rollout."""
    run = subprocess.run(
        [sys.executable, "-c", MEMORY_OF_EACH_ROLLOUT],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    first, second, third = [int(x) for x in re.findall(r"^MB (\d+)$", run.stdout, re.M)]
    assert max(second, third) < 1.4 * first


@BOTH
def test_inline_metadata_equals_requirements(module):
    source = Path(module.__file__).read_text()
    block = re.search(r"# dependencies = \[\n(.*?)# \]", source, re.S).group(1)
    inline = re.findall(r'^#   "(.*)",$', block, re.M)
    lines = Path(module.__file__).with_name("requirements.txt").read_text().splitlines()
    assert inline == [line for line in lines if line and not line.startswith("#")]
