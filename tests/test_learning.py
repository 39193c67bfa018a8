"""Both scripts learn a small game, and only from its rewards."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ppg_procgen
import ppo_procgen
from tiny_env import CHANCE, MEAN_LENGTH, TinyEnv

pytestmark = pytest.mark.usefixtures("one_thread")

FLAGS = dict(num_envs=32, num_steps=8, num_minibatches=4, gamma=0.5, learning_rate=1e-3)
FLAGS |= dict(ent_coef=0.003, cuda=False)
PPG_FLAGS = dict(arch="detach", e_pi=3, e_v=3, n_pi=2, e_aux=1, aux_learning_rate=1e-3)
CASES = [(ppo_procgen, FLAGS), (ppg_procgen, FLAGS | PPG_FLAGS)]
BOTH = pytest.mark.parametrize(("module", "flags"), CASES, ids=["ppo", "ppg"])


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that trains on TinyEnv and returns all logged scalars: {tag: [value, ...]}."""

    def train(module, flags, iterations, shuffle_rewards=False):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(
            module, "make_envs", lambda args: TinyEnv(args.num_envs, args.seed, shuffle_rewards)
        )
        steps = iterations * flags["num_envs"] * flags["num_steps"]
        module.train(module.Args(**flags, total_timesteps=steps))
        run_dir = next(tmp_path.glob("runs/*"))
        events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
        events.Reload()
        scalars = {tag: [e.value for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        if module is ppg_procgen:
            phases = (iterations - 1) // flags["n_pi"]
            assert len(scalars["losses/aux/kl_loss"]) == phases * flags["e_aux"] > 0
        print("returns:", *(f"{x:.2f}" for x in scalars["charts/episodic_return"]))
        return scalars

    return train


@BOTH
def test_learns(run, module, flags):
    returns = run(module, flags, iterations=9)["charts/episodic_return"]
    assert returns[0] < 3 * CHANCE
    # 10 times chance; the best constant action has 1/3. The bound was 0.8 at first, which seed 1
    # passes; PPO with seed 2 ended a longer run at 0.79, so 0.7 is what these settings support.
    assert returns[-1] > 0.7 * MEAN_LENGTH


@BOTH
def test_learns_nothing_with_learning_rate_zero(run, module, flags):
    flags = flags | dict(learning_rate=0.0)
    if module is ppg_procgen:
        flags |= dict(aux_learning_rate=0.0, n_pi=1)
    returns = run(module, flags, iterations=3)["charts/episodic_return"]
    assert abs(returns[-1] - CHANCE) < 0.3


@BOTH
def test_learns_nothing_from_rewards_of_others(run, module, flags):
    returns = run(module, flags, iterations=6, shuffle_rewards=True)["charts/episodic_return"]
    assert returns[-1] < 3 * CHANCE
