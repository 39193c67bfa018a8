"""Every flag changes something; what belongs together stays together."""

import contextlib
import dataclasses
import functools
import sys
import tempfile
from copy import deepcopy
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import Mock

import pytest
import torch
import torch.nn as nn

import ppg_procgen
import ppo_procgen
from tiny_env import TinyEnv

SCRIPTS = [ppo_procgen, ppg_procgen]
BOTH = pytest.mark.parametrize("module", SCRIPTS, ids=["ppo", "ppg"])
BY = pytest.mark.parametrize("minibatch_by", ["steps", "trajectories"])

SMALL = dict(num_envs=8, num_steps=8, num_minibatches=2, total_timesteps=128, cuda=False)
SMALL |= dict(learning_rate=0.1)
PPG = dict(n_pi=1, e_aux=1, aux_minibatch_rollouts=4, aux_learning_rate=0.1)
BASELINE = {ppo_procgen: SMALL, ppg_procgen: SMALL | PPG}

CHANGES = {  # flag: another value, everything that must change, what else the baseline needs
    "exp_name": ("other", "directory", {}),
    "seed": (2, "directory games weights", {}),
    "torch_deterministic": (False, "cudnn", {}),
    "cuda": (False, "device", dict(cuda=True)),
    "bf16": (True, "agent", {}),
    "compile": (True, "compiled", {}),
    "micro_batch_size": (3, "batches", {}),
    "track": (True, "wandb", {}),
    "wandb_project_name": ("other", "wandb", dict(track=True)),
    "wandb_entity": ("team", "wandb", dict(track=True)),
    "capture_video": (True, "files", {}),
    "checkpoint_interval": (0, "files", dict(checkpoint_interval=1)),
    "env_id": ("coinrun", "directory games", {}),
    "distribution_mode": ("hard", "games", {}),
    "num_levels": (10, "games", {}),
    "start_level": (5, "games", dict(num_levels=10)),
    "num_test_envs": (4, "envs", {}),
    "num_envs": (16, "games weights", {}),
    "num_threads": (2, "games", {}),
    "total_timesteps": (192, "weights", {}),
    "learning_rate": (0.2, "weights", {}),
    "anneal_lr": (True, "weights", {}),
    "num_steps": (4, "weights", {}),
    "gamma": (0.5, "weights", {}),
    "gae_lambda": (0.5, "weights", {}),
    "num_minibatches": (4, "weights", {}),
    "minibatch_by": ("trajectories", "weights", {}),
    "clip_coef": (1e-3, "weights", {}),
    "ent_coef": (10.0, "weights", {}),
    "vf_coef": (0.1, "weights", {}),
    "max_grad_norm": (0.01, "weights", {}),
    "update_epochs": (1, "weights", {}),
    "arch": ("detach", "weights", dict(arch="shared")),
    "n_pi": (2, "weights", {}),
    "e_pi": (3, "weights", dict(e_v=2)),
    "e_v": (3, "weights", dict(e_pi=2)),
    "e_aux": (2, "weights", {}),
    "beta_clone": (0.0, "weights", dict(e_aux=6, aux_learning_rate=0.3)),
    "vf_true_weight": (0.1, "weights", {}),
    "kl_penalty": (10.0, "weights", {}),
    "aux_learning_rate": (0.2, "weights", {}),
    "aux_minibatch_rollouts": (2, "weights", {}),
}


class Stop(Exception):
    """Ends a run where its games are built."""


SEEN = {}  # what the last run of `trained` built and wrote


class SmallEncoder(nn.Module):
    """Sees 16 pixels of an image, which suffice for TinyEnv. Notes the sizes of its batches."""

    sizes: ClassVar = []

    def __init__(self, bf16):
        super().__init__()
        self.dense = nn.Linear(4 * 4 * 3, 256)

    def forward(self, obs):
        self.sizes.append(len(obs))
        return self.dense(obs[:, 8::16, 8::16].flatten(1) / 255).relu()


@contextlib.contextmanager
def sandbox():
    """A patcher in an empty current directory. All that is patched here ends with it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(torch.backends.cudnn, "deterministic", torch.backends.cudnn.deterministic)
        patch.setattr("torch.utils.tensorboard.SummaryWriter", lambda *_, **__: Mock())
        yield patch


def parse(module, flags):
    """Args from a command line: {"num_envs": 8, "cuda": False} is --num-envs=8 --no-cuda."""
    words = []
    for name, value in flags.items():
        name = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words.append(f"--{name}={value}")
    return module.parse_args(words)


def started(module, flags):
    """What a run has set up when it builds its games, on a machine that seems to have a GPU."""
    seen = {"wandb": []}

    class FakeAgent:
        def __init__(self, *args):
            seen["agent"] = args

        def to(self, device, **_):
            seen["device"] = device.type
            return nn.Linear(1, 1)

    def games(**keywords):
        seen["games"] = keywords
        raise Stop

    def init(project, entity, name, id, resume, **_):
        assert name == id == next(Path("runs").iterdir()).name and resume == "allow"
        seen["wandb"].append((project, entity))

    wandb = SimpleNamespace(__spec__=ModuleSpec("wandb", None), init=init, config=Mock())
    with sandbox() as patch:
        patch.setitem(sys.modules, "wandb", wandb)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
        patch.setattr(module, "Agent", FakeAgent)
        patch.setattr("procgen.ProcgenGym3Env", games)
        with pytest.raises(Stop):
            module.train(parse(module, flags))
        seen["cudnn"] = torch.backends.cudnn.deterministic
        (run_dir,) = Path("runs").iterdir()
        seen["directory"] = run_dir.name.rsplit("__", 1)[0]  # without the time
    return seen


def trained(module, flags):
    """The weights after a run on TinyEnv, which always gets the same seed.

    Adam would hide a factor of the whole gradient, and blow up rounding where a gradient is zero.
    """

    def make_envs(args):
        SEEN["envs"].append(args.num_envs)
        return TinyEnv(args.num_envs, seed=0)

    def compile_nothing(function, **options):
        SEEN["compiled"].append(options)
        return function

    SmallEncoder.sizes.clear()
    SEEN.update(envs=[], compiled=[])
    with sandbox() as patch:
        patch.setattr(module, "Encoder", SmallEncoder)
        patch.setattr(module, "make_envs", make_envs)
        patch.setattr(torch.optim, "Adam", lambda weights, lr, **_: torch.optim.SGD(weights, lr))
        patch.setattr(torch, "compile", compile_nothing)
        patch.setattr(module.shutil, "which", lambda name: name)
        agent = module.train(parse(module, flags))
        (run_dir,) = Path("runs").iterdir()
        SEEN["files"] = sorted(file.name for file in run_dir.iterdir())
    return nn.utils.parameters_to_vector(agent.parameters()).detach()


@functools.cache  # many flags share a baseline
def observed(module, name, flags):
    """One observable of a run with these (flag, value) pairs."""
    flags = dict(flags)
    if name in ("weights", "batches", "files", "compiled", "envs"):
        weights = trained(module, flags)
        return {**SEEN, "weights": weights, "batches": list(SmallEncoder.sizes)}[name]
    return started(module, flags)[name]


def changed(before, after):
    """Whether an observable differs."""
    if isinstance(before, torch.Tensor):  # rounding explains 3e-6; a run moves them by 0.2 or more
        return before.shape != after.shape or (before - after).norm() > 1e-4
    return before != after


# ------------------------------------------------------------------------------------ Row 7: flags

FLAGS = [(module, field.name) for module in SCRIPTS for field in dataclasses.fields(module.Args)]
FLAGS = [(module, flag) for module, flag in FLAGS if flag != "resume"]  # see test_resume.py


@pytest.mark.parametrize("module, flag", FLAGS, ids=[f"{m.__name__[:3]}-{f}" for m, f in FLAGS])
def test_every_flag_changes_something(module, flag):
    """A new flag fails here until CHANGES has it."""
    value, observables, needs = CHANGES[flag]
    before = BASELINE[module] | needs
    after = before | {flag: value}
    for name in observables.split():
        runs = [observed(module, name, tuple(flags.items())) for flags in (before, after)]
        assert changed(*runs), f"--{flag} {value} leaves the {name} as they are"


@pytest.mark.parametrize(
    "flag, needs", [("max_grad_norm", {}), ("anneal_lr", dict(total_timesteps=192))]
)
def test_flag_reaches_the_auxiliary_phase_too(flag, needs):
    """Nothing else trains here."""
    before = BASELINE[ppg_procgen] | dict(learning_rate=0.0) | needs
    after = before | {flag: CHANGES[flag][0]}
    assert changed(trained(ppg_procgen, before), trained(ppg_procgen, after))


def test_every_change_is_of_a_flag():
    assert sorted(CHANGES) == sorted({flag for _, flag in FLAGS})


@BOTH
def test_nothing_changes_without_a_flag(module):
    """Otherwise the tests above would say nothing."""
    flags = BASELINE[module]
    assert torch.equal(trained(module, flags), trained(module, flags))
    assert started(module, flags) == started(module, flags)


@BOTH
@pytest.mark.parametrize("on", [True, False])
def test_where_flags_arrive(module, on):
    """Not only something: each value arrives in its own place."""
    flags = dict(exp_name="mine", seed=3, torch_deterministic=on, cuda=on, track=on, bf16=on)
    flags |= dict(wandb_project_name="project", wandb_entity="team", env_id="chaser")
    flags |= dict(distribution_mode="extreme", num_levels=20, start_level=7, num_threads=2)
    assert started(module, flags | dict(num_envs=16)) == dict(
        directory="chaser__mine__3",
        cudnn=on,
        agent=(on,) if module is ppo_procgen else ("dual", on),
        device="cuda" if on else "cpu",
        wandb=[("project", "team")] if on else [],
        games=dict(
            num=16,
            env_name="chaser",
            distribution_mode="extreme",
            num_levels=20,
            start_level=7,
            num_threads=2,
            rand_seed=3,
        ),
    )


# ------------------------------------------------------------- Row 25: rows stay together, shuffled


def numbered(num_rows, num_steps):
    """The numbers 0, 1, 2, ... of all states, and images of which each shows its number."""
    ids = torch.arange(num_rows * num_steps).reshape(num_rows, num_steps)
    obs = ids.to(torch.uint8)[:, :, None, None, None].expand(-1, -1, 64, 64, 3)
    return ids.double(), obs


def logits_of(ids):
    """15 numbers for each state, which no other state has."""
    return 64.0 * ids[..., None] + torch.arange(15)


class NumberReader(nn.Module):
    """An agent whose outputs say which state it was shown."""

    def __init__(self):
        super().__init__()
        self.zero = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.shown = []  # the numbers in each minibatch

    def forward(self, obs):
        ids = obs[:, 0, 0, 0].double()
        self.shown.append(ids)
        return logits_of(ids) + self.zero, ids + self.zero

    def with_aux_value(self, obs):
        logits, values = self(obs)
        return logits, values, -values


def spy_on(monkeypatch, module, name, look):
    """Let `look` see every call of a function and its result."""
    function = getattr(module, name)

    def spy(*args):
        result = function(*args)
        look(result, *args)
        return result

    monkeypatch.setattr(module, name, spy)


def assert_epochs(shown, num_epochs, num_rows, num_steps, whole_trajectories):
    """Each epoch shows every state once, and not in the order in which they are stored."""
    epochs = torch.cat(shown).reshape(num_epochs, -1)
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(num_rows * num_steps))
        assert epoch.tolist() != sorted(epoch.tolist())
        steps = epoch.reshape(num_rows, num_steps) % num_steps
        assert (steps == torch.arange(num_steps)).all() == whole_trajectories


@BY
@pytest.mark.parametrize(
    "module, epochs",
    [
        (ppo_procgen, dict(update_epochs=2)),
        (ppg_procgen, dict(e_pi=2, e_v=2)),
        (ppg_procgen, dict(e_pi=1, e_v=2)),
    ],
    ids=["ppo", "ppg-sum", "ppg-apart"],
)
def test_policy_phase_keeps_rows_together(monkeypatch, module, epochs, minibatch_by):
    """Image, action, old log-probability, advantage and value target."""
    ids, obs = numbered(8, 6)
    actions = (7 * ids % 15).long()
    # Where all five belong together, the log-ratio of state i is i / 64, its advantage 1000 + i.
    logprobs = logits_of(ids).gather(2, actions[:, :, None]).squeeze(2) - ids / 64
    batch = dict(obs=obs, actions=actions, logprobs=logprobs)
    batch |= dict(advantages=1000 + ids, returns=2000 + ids)
    agent, met = NumberReader(), {"policy": [], "value": []}

    def policy(_, ratio, advantages, clip_coef):
        met["policy"].append(advantages - 1000)
        torch.testing.assert_close(64 * ratio.detach().log(), agent.shown[-1])

    def value(_, values, returns):
        met["value"].append(returns - 2000)
        assert torch.equal(values, agent.shown[-1])

    spy_on(monkeypatch, module, "clipped_surrogate", policy)
    spy_on(monkeypatch, module, "value_loss", value)
    args = module.Args(num_minibatches=4, minibatch_by=minibatch_by, **epochs)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.0)
    module.policy_phase(agent, {"policy": optimizer, "value": optimizer}, batch, args)

    num_epochs = 3 if epochs.get("e_pi") == 1 else 2
    assert_epochs(agent.shown, num_epochs, 8, 6, minibatch_by == "trajectories")
    for seen in met.values():
        assert len(seen) == len(agent.shown) == 4 * num_epochs
        assert all(map(torch.equal, seen, agent.shown))


@BY
def test_auxiliary_epoch_keeps_rows_together(monkeypatch, minibatch_by):
    """Image, value target and old logits; the last of the minibatches of 3 has 1 trajectory."""
    ids, obs = numbered(7, 6)
    buffer = dict(obs=obs, returns=2000 + ids, old_logits=-logits_of(ids))
    agent, met = NumberReader(), []

    def kl(_, old_logits, logits):
        met.append("kl")
        assert torch.equal(old_logits, -logits_of(agent.shown[-1]))
        assert torch.equal(logits, logits_of(agent.shown[-1]))

    def value(_, values, returns):
        met.append("value")
        assert torch.equal(values.abs(), agent.shown[-1])
        assert torch.equal(returns - 2000, agent.shown[-1])

    spy_on(monkeypatch, ppg_procgen, "kl_divergence", kl)
    spy_on(monkeypatch, ppg_procgen, "value_loss", value)
    # Auxiliary minibatches hold whole trajectories whatever --minibatch-by says.
    args = ppg_procgen.Args(aux_minibatch_rollouts=3, minibatch_by=minibatch_by)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.0)
    ppg_procgen.auxiliary_epoch(agent, optimizer, buffer, args)

    assert [len(shown) for shown in agent.shown] == [18, 18, 6]
    assert_epochs(agent.shown, 1, 7, 6, whole_trajectories=True)
    assert sorted(met) == ["kl"] * 3 + ["value"] * 6  # V and V_aux


class NumberedEnv(TinyEnv):
    """TinyEnv whose first pixel shows the environment's number and the step's, from 0 on."""

    step = -1

    def _draw(self):
        super()._draw()
        self.step += 1
        self.rgb[:, 0, 0, 0], self.rgb[:, 0, 0, 1] = range(self.num), self.step


@pytest.fixture
def calls():
    """What happened in 5 iterations of PPG with a phase of 3 auxiliary epochs after every second.

    In order, each call's name, its agent and data (batch, images or buffer) as they were before
    it, and its result.
    """
    log = []

    def recorded(function):
        def spy(agent, *args):
            data = args[1 - (function.__name__ == "old_policy_logits")]
            call = SimpleNamespace(name=function.__name__, agent=deepcopy(agent))
            call.data = deepcopy(data)
            log.append(call)
            result = function(agent, *args)
            call.result = deepcopy(result)
            return result

        return spy

    flags = BASELINE[ppg_procgen] | dict(n_pi=2, e_aux=3, total_timesteps=5 * 8 * 8)
    flags |= dict(learning_rate=5e-4, aux_learning_rate=5e-3)  # both change the policy visibly
    with sandbox() as patch:
        patch.setattr(ppg_procgen, "Encoder", SmallEncoder)
        patch.setattr(ppg_procgen, "make_envs", lambda args: NumberedEnv(args.num_envs, seed=0))
        for name in "policy_phase", "old_policy_logits", "auxiliary_epoch":
            patch.setattr(ppg_procgen, name, recorded(getattr(ppg_procgen, name)))
        ppg_procgen.train(parse(ppg_procgen, flags))
    phase = ["policy_phase"] * 2 + ["old_policy_logits"] + ["auxiliary_epoch"] * 3
    assert [call.name for call in log] == phase * 2 + ["policy_phase"]
    return log


def logits_for(agent, obs):
    """log pi of images (R, T, 64, 64, 3)."""
    with torch.no_grad():
        return agent(obs.flatten(0, 1))[0].unflatten(0, obs.shape[:2])


def test_auxiliary_buffer_holds_the_rollouts_since_the_last_phase(calls):
    rollouts = [call.data for call in calls if call.name == "policy_phase"]
    assert all(not torch.equal(a["returns"], b["returns"]) for a, b in pairwise(rollouts))
    for first, phase in (0, calls[:6]), (2, calls[6:12]):
        for epoch in phase[3:]:
            for slot in 0, 1:
                # Row 8 * slot + n is the trajectory of environment n in rollout first + slot.
                buffer = {name: x[8 * slot : 8 * slot + 8] for name, x in epoch.data.items()}
                rollout = rollouts[first + slot]
                assert torch.equal(buffer["obs"], rollout["obs"])
                assert torch.equal(buffer["returns"], rollout["returns"])
                environment, step = buffer["obs"][:, :, 0, 0, :2].unbind(-1)
                assert (environment == torch.arange(8)[:, None]).all()
                assert (step == 8 * (first + slot) + torch.arange(8)).all()
                want = logits_for(phase[2].agent, rollout["obs"])
                torch.testing.assert_close(buffer["old_logits"], want)


# ------------------------------------------------------------------------------ Row 26: old logits


def weights_of(agent):
    return nn.utils.parameters_to_vector(agent.parameters())


def test_old_logits_are_of_the_end_of_the_policy_phase(calls):
    """Computed once, of the policy that the auxiliary phase starts from, and kept to its end."""
    for _, last, old, *epochs in (calls[:6], calls[6:12]):
        assert not torch.equal(weights_of(last.agent), weights_of(old.agent))
        assert torch.equal(weights_of(old.agent), weights_of(epochs[0].agent))
        torch.testing.assert_close(old.result, logits_for(old.agent, old.data["obs"]))
        for epoch in epochs:
            assert torch.equal(epoch.data["old_logits"], old.result)
        # So the first step's divergence is 0, but not that of later epochs.
        divergences = [epoch.result[0]["kl_loss"].item() for epoch in epochs]
        assert abs(divergences[0]) < 1e-6 and min(divergences[1:]) > 1e-5
