# /// script
# requires-python = ">=3.10,<3.13"
# dependencies = [
#   # The first three do not exist: where they are asked for, the installer stops and names them.
#   "procgen-mirror==0.10.7+needs.python.3.10.to.3.12; python_version >= '3.13'",
#   "procgen-mirror==0.10.7+needs.python.3.10; python_version > '3.10' and sys_platform != 'linux'",
#   "procgen-mirror==0.10.7+needs.x86.64; platform_machine not in 'x86_64 AMD64'",
#   "procgen-mirror==0.10.7; python_version >= '3.11' and python_version < '3.13'",
#   "procgen==0.10.7; python_version < '3.11'",
#   "torch>=2.4",
#   "numpy>=1.23,<2",
#   "gym>=0.21,<0.27",
#   "gym-notices<0.1",
#   "tensorboard>=2.12",
#   "tyro>=0.9.2",
#   "tqdm>=4.64",
# ]
# ///
r"""Proximal Policy Optimization (PPO) on Procgen, the baseline of the Phasic Policy Gradient paper.

The paper: Cobbe, Hilton, Klimov, Schulman 2020, https://arxiv.org/abs/2009.04416. "Published code"
is its authors' implementation, https://github.com/openai/phasic-policy-gradient at commit 7295473.

  python ppg_procgen.py                            PPG with the defaults: starpilot, easy, 25M steps
  python ppo_procgen.py                            its baseline: the same program without phases
  python ppg_procgen.py --help                     all flags of a script
  python ppo_procgen.py --total-timesteps 300e3    a first look on a laptop
  tensorboard --logdir runs                        the curves

At the paper's scale (4 workers of 64 environments; one process with 256 stands for them):
  python ppg_procgen.py --distribution-mode hard --total-timesteps 100e6 --num-envs 256 \
      --minibatch-by trajectories --aux-minibatch-rollouts 16
  python ppo_procgen.py --distribution-mode hard --total-timesteps 100e6 --num-envs 256 \
      --minibatch-by trajectories

Read from top to bottom: Arguments, Workers, Checkpoints, Environments, Running, Network, Equations,
Training; or from Network on, in a hurry. `diff ppo_procgen.py ppg_procgen.py` prints what PPG adds
to PPO. In both, `policy_phase` is the update after one rollout; the paper's policy phase is N_pi of
them, with their rollouts. With one process, worker_mean(x) is x.

Shapes: N environments, T steps of a rollout, B states of a minibatch, A = 15 actions. Row n of an
(N, T) tensor is the trajectory of environment n. Observations stay bytes (64, 64, 3) until the
network's first line. "log pi" or `logits` are normalized: the log-probabilities of all actions.

What differs by default from the published code, which is otherwise followed update for update:
  1. Minibatches hold shuffled single steps (--minibatch-by), as in CleanRL: with 64 environments, 8
     whole trajectories are few and alike. `trajectories` is the published way.
  2. The losses in the log are means over all gradient steps of an iteration, not of its last epoch.
  3. Several workers divide rewards by the deviation of all their returns; the published code
     averages the variances of the workers.
"""

import contextlib
import ctypes
import difflib
import errno
import io
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, Optional, get_args, get_origin, get_type_hints

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import tyro
from tqdm import tqdm

# ============================== Arguments ========================================================


class Stopped(Exception):
    """A signal asked the run to end. One line: what goes on with it, or why nothing can."""


class UsageError(Exception):
    """What was asked for cannot be done. One line: the flag, its value and what is allowed."""


@dataclass(frozen=True)
class Limits:
    """The smallest and the largest value a flag may have."""

    low: float
    high: float


def parse_integer(words):
    """The integer in a flag's one word, which may be written as 25e6; ValueError for 2.5."""
    with contextlib.suppress(ValueError):  # of float("25M")
        if float(words[0]).is_integer():
            return int(float(words[0]))
    raise ValueError(f"{words[0]} is not an integer, such as 25000000 or 25e6")


Integer = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="INT",
    instance_from_str=parse_integer,
    is_instance=lambda x: isinstance(x, int),
    str_from_instance=lambda x: [str(x)],
)
Count = Annotated[int, Limits(1, 10**6), Integer]  # 1, 2, 3, ...
Steps = Annotated[int, Limits(1, 10**15), Integer]
Number = Annotated[int, Limits(0, 2**31 - 1), Integer]  # 0, 1, 2, ... within Procgen's 32 bits
CountOrZero = Annotated[int, Limits(0, 10**6), Integer]
Threads = Annotated[int, Limits(0, 1024), Integer]
Coefficient = Annotated[float, Limits(0, 1e30)]  # well within float32
Fraction = Annotated[float, Limits(0, 1)]


@dataclass
class Args:
    exp_name: str = Path(__file__).stem
    """name of the experiment, part of the run directory's name"""
    seed: Number = 1
    """seed of the weights, the sampled actions, the minibatches and the games"""
    torch_deterministic: bool = True
    """restrict cuDNN to deterministic algorithms"""
    cuda: bool = True
    """train on the GPU, if there is one"""
    bf16: bool = False
    """compute the encoders in bfloat16, faster where the processor has it"""
    compile: bool = False
    """compile the network for the GPU with torch.compile, which takes a minute or two"""
    micro_batch_size: Number = 0
    """states computed together; 0 = 64 on a CPU (with --bf16 128), the minibatch on a GPU"""
    track: bool = False
    """log to Weights & Biases too"""
    wandb_project_name: str = "ppg-procgen"
    """project at Weights & Biases, with --track"""
    wandb_entity: Optional[str] = None
    """team at Weights & Biases, with --track"""
    capture_video: bool = False
    """write a clip of the first environment's rollout, up to 20 times in a run"""
    checkpoint_interval: CountOrZero = 10
    """iterations from one checkpoint to the next; 0 = only when the run ends or is stopped"""
    resume: Optional[str] = None
    """directory of a run to go on with, which has all flags but a few that may change"""

    env_id: str = "starpilot"
    """the game, one of Procgen's 16"""
    distribution_mode: Literal["easy", "hard", "extreme", "memory", "exploration"] = "easy"
    """difficulty of the levels (paper: hard); some games lack the last three"""
    num_levels: Number = 0
    """number of training levels; 0 = unlimited (paper: 0)"""
    start_level: Number = 0
    """number of the first training level, with --num-levels"""
    num_test_envs: CountOrZero = 0
    """environments over all levels, played beside the training ones and never trained on"""
    num_envs: Count = 64
    """environments stepped together (N; paper: 256, as 4 workers of 64)"""
    num_threads: Threads = 4
    """threads that step the games; 0 = the main thread does"""

    total_timesteps: Steps = 25_000_000
    """environment steps in total, rounded up to whole rollouts (paper: 100e6)"""
    learning_rate: Coefficient = 5e-4
    """Adam's step size (paper: 5e-4)"""
    anneal_lr: bool = False
    """lower every learning rate linearly towards zero over the run (published code: constant)"""
    num_steps: Count = 256
    """steps of one rollout in each environment (T; paper: 256)"""
    gamma: Fraction = 0.999
    """discount factor (gamma; paper: .999)"""
    gae_lambda: Fraction = 0.95
    """decay of generalized advantage estimation (lambda; paper: .95)"""
    num_minibatches: Count = 8
    """minibatches per epoch of the policy phase, a divisor of --num-envs (paper: 8)"""
    minibatch_by: Literal["steps", "trajectories"] = "steps"
    """what is shuffled into minibatches: single steps, or whole trajectories (published code)"""
    clip_coef: Coefficient = 0.2
    """clipping range of the probability ratio (epsilon; paper: .2); 0 = no clipping"""
    ent_coef: Coefficient = 0.01
    """weight of the entropy bonus S (beta_S; paper: .01)"""
    vf_coef: Coefficient = 1.0
    """weight of L^value, which is 1/2 (V - V_targ)^2 (paper: 1)"""
    max_grad_norm: Coefficient = 0.0
    """largest allowed norm of the gradient; 0 = no limit (as published)"""
    update_epochs: Count = 3
    """epochs over each rollout (E; paper: 3)"""


GAMES = (
    "bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot "
    "heist jumper leaper maze miner ninja plunder starpilot"
).split()
MODE_GAMES = {  # Procgen ends the process when a game lacks the mode
    "easy": GAMES,
    "hard": GAMES,
    "extreme": "chaser dodgeball leaper starpilot".split(),
    "memory": "caveflyer dodgeball heist jumper maze miner".split(),
    "exploration": "caveflyer climber coinrun heist jumper leaper maze ninja".split(),
}


# Flags that may change when a run is resumed.
MAY_CHANGE = {"total_timesteps", "checkpoint_interval", "capture_video", "track", "resume"}
MAY_CHANGE |= {"wandb_project_name", "wandb_entity"}


def read_flags(argv, default):
    """A command line over default Args. Raises UsageError for whatever tyro refuses."""
    stderr = io.StringIO()
    about = (__doc__ or "").split("\n", 1)[0]
    try:
        with contextlib.redirect_stderr(stderr):
            return tyro.cli(Args, args=argv, default=default, description=about)
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        # tyro draws a coloured box around its message: keep the words, in one line.
        text = re.sub(r"\x1b\[[0-9;]*m|[│|]", "", stderr.getvalue())
        lines = [line.strip() for line in text.splitlines() if not re.search("[─-]{8}", line)]
        words = re.split("Argument helptext|For full helptext", " ".join(lines))[0].strip()
        raise UsageError(f"{words} (see --help)") from None


def parse_args(argv=None):
    """Read a command line into Args, those of --resume first. Raises UsageError."""
    args = read_flags(argv, Args())
    if args.resume is not None:
        file = Path(args.resume) / "args.json"
        try:
            stored = json.loads(file.read_text("utf-8"))
            check_flags(args, stored)
            known = {name: value for name, value in stored.items() if name in asdict(args)}
            stored = replace(Args(**known), resume=args.resume)
            check_args(stored)
        except (OSError, ValueError, TypeError, AttributeError) as error:  # no flags, or no JSON
            raise UsageError(f"--resume {args.resume}: cannot use {file}: {error}") from None
        args = read_flags(argv, stored)
        check_same_run(args, asdict(stored))
    check_args(args)
    return args


def check_flags(args, stored):
    """Raise UsageError for the flags of a run that this script lacks, or the other way round."""
    strange = (stored.keys() ^ asdict(args).keys()) - {"resume", "num_workers"}
    if strange:
        script, flags = Path(__file__).name, ", ".join(sorted(strange)).replace("_", "-")
        raise UsageError(f"--resume {args.resume}: is no run of {script}, they differ in {flags}")


def check_same_run(args, stored):
    """Raise UsageError for arguments that differ from those a run was started with."""
    for name, value in asdict(args).items():
        if name not in MAY_CHANGE and stored[name] != value:
            may = ", ".join(sorted(MAY_CHANGE - {"resume"})).replace("_", "-")
            flag = f"--{name.replace('_', '-')} {value}"
            raise UsageError(f"{flag}: the run has {stored[name]}; --resume lets change {may}")


def check_args(args):
    """Raise UsageError for arguments that no run can have, before anything is built or written."""
    for name, hint in get_type_hints(type(args), include_extras=True).items():
        value = getattr(args, name)
        flag = f"--{name.replace('_', '-')} {value}"
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise UsageError(f"{flag}: choose from {', '.join(get_args(hint))}")
        for limits in (extra for extra in get_args(hint) if isinstance(extra, Limits)):
            if not limits.low <= value <= limits.high:
                range_ = f"at least {limits.low:,} and at most {limits.high:,}"
                raise UsageError(f"{flag}: must be a number of {range_}")
    if args.env_id not in GAMES:
        name = args.env_id.lower()
        close = [game for game in GAMES if game in name] or difflib.get_close_matches(name, GAMES)
        guess = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"--env-id {args.env_id}: {guess}The games are {', '.join(GAMES)}")
    mode = args.distribution_mode
    games = MODE_GAMES[mode]
    if args.env_id not in games:
        modes = ", ".join(name for name in MODE_GAMES if args.env_id in MODE_GAMES[name])
        raise UsageError(
            f"--distribution-mode {mode}: not with --env-id {args.env_id}, which has {modes}; "
            f"{mode} exists for {', '.join(games)}"
        )
    if mode == "exploration" and (args.num_levels or args.start_level):
        raise UsageError(
            f"--distribution-mode exploration: has one fixed level, so --num-levels "
            f"{args.num_levels} and --start-level {args.start_level} must both be 0"
        )
    if args.start_level + args.num_levels > 2**31 - 1:
        raise UsageError(
            f"--start-level {args.start_level} with --num-levels {args.num_levels}: "
            f"their sum must be at most {2**31 - 1}"
        )
    if args.num_envs % args.num_minibatches:
        raise UsageError(
            f"--num-minibatches {args.num_minibatches}: must divide --num-envs {args.num_envs}"
        )
    if (
        not args.exp_name.strip()
        or not args.exp_name.isprintable()
        or set(args.exp_name) & set("/\\")
        or len(args.exp_name.encode()) > 200
    ):
        what = "the name of a directory, no path, of at most 200 bytes"
        raise UsageError(f"--exp-name {args.exp_name!r}: must be {what}")
    if args.track and not find_spec("wandb"):
        raise UsageError("--track: needs Weights & Biases, which `pip install wandb` installs")
    compiler = "a C++ compiler"
    compilers = filter(shutil.which, [os.environ.get("CXX", ""), "g++", "clang++", "cl"])
    if args.cuda and torch.cuda.is_available():
        compiler, compilers = "Triton", [find_spec("triton")]
    if args.compile and not any(compilers):
        raise UsageError(f"--compile: needs {compiler}, which is not installed")
    if not find_spec("procgen"):
        raise UsageError(
            "Procgen is not installed: pip install -r requirements.txt. It has builds for Python "
            "3.10 (Linux, Windows and macOS on x86-64) and for Python 3.11 and 3.12 (Linux x86-64)"
        )


# ============================== Workers ==========================================================

# torchrun starts this program once per worker. Each plays its own games; all train one agent.
RANK = int(os.environ.get("RANK", 0))  # of this worker; the worker with rank 0 speaks for all
NUM_WORKERS = int(os.environ.get("WORLD_SIZE", 1))
NUM_LOCAL_WORKERS = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # on this machine


def worker_seed(args):
    """A seed of its own for each worker, within Procgen's 32 bits."""
    return (args.seed + 10_000 * RANK) % 2**31


def worker_mean(x):
    """Mean of a tensor over the workers, in place."""
    if NUM_WORKERS > 1:
        dist.all_reduce(x)
        x /= NUM_WORKERS
    return x


def worker_concat(items):
    """The lists of all workers as one."""
    lists = [items] * NUM_WORKERS
    if NUM_WORKERS > 1:
        dist.all_gather_object(lists, items)
    return [item for part in lists for item in part]


def refuse_together(problem):
    """Raise UsageError on all workers, with the problem that one of them has; "" is none."""
    problems = [words for words in worker_concat([problem]) if words]
    if problems:
        raise UsageError(problems[0])


def any_worker(condition, device):
    """Whether a condition holds for any worker."""
    return worker_mean(torch.tensor(float(bool(condition)), device=device)).item() > 0


def moments(x):
    """Mean and (biased) variance of a tensor of all workers."""
    mean = worker_mean(x.mean())
    return mean, worker_mean((x - mean).square().mean())


# ============================== Checkpoints ======================================================


def write_file(path, data, previous=None):
    """Write bytes. Killed at any moment, this leaves the file as it was, or as it shall be.

    With a `previous` path, what was there is kept under it, and for a moment under it alone.
    """
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if NUM_WORKERS > 1 and previous:
        dist.barrier()  # so that all workers have this checkpoint or the one before in common
    if previous and path.exists():
        os.replace(path, previous)
    os.replace(new, path)


def write_flags(run_dir, args):
    """Write args.json, from which --resume takes its flags."""
    flags = {name: value for name, value in asdict(args).items() if name != "resume"}
    flags["num_workers"] = NUM_WORKERS
    write_file(Path(run_dir) / "args.json", (json.dumps(flags, indent=2) + "\n").encode())


LOCKS = []  # files that this process has locked; the system unlocks them when it ends


def lock(run_dir):
    """Keep other processes out of the directory of a run. Raises UsageError if one is there."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    LOCKS.append(open(Path(run_dir) / "lock", "w"))  # noqa: SIM115
    try:
        fcntl.lockf(LOCKS[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise UsageError(f"{run_dir}: another process is training there") from None
    except OSError:  # a file system that cannot lock
        return


class Stateful:
    """An object whose state, in a checkpoint, is all of its attributes."""

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


class Games:
    """What a checkpoint needs to know of the environments: the exact state of each."""

    def __init__(self, envs):
        self.envs = envs

    def state_dict(self):
        states = [bytearray(state) for state in self.envs.get_state()]
        return {"states": [torch.frombuffer(state, dtype=torch.uint8) for state in states]}

    def load_state_dict(self, state):
        self.envs.set_state([game.numpy().tobytes() for game in state["states"]])


class Random:
    """What a checkpoint needs to know of the random number generators."""

    def state_dict(self):
        name, keys, *rest = np.random.get_state()
        states = {"python": random.getstate(), "numpy": (name, keys.tolist(), *rest)}
        states["cuda"] = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        return states | {"torch": torch.get_rng_state()}

    def load_state_dict(self, states):
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        torch.set_rng_state(states["torch"])
        if states["cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"])


def checkpoint_files(run_dir):
    """Paths of this worker's last checkpoint and of the one before."""
    return [Path(run_dir) / f"{name}.{RANK}.pt" for name in ("checkpoint", "previous")]


def save_checkpoint(run_dir, args, parts, counters):
    """Write all that the rest of the run depends on: {part: its state, counter: number}."""
    state = {name: part.state_dict() for name, part in parts.items()} | counters
    state |= {"args": asdict(args), "num_workers": NUM_WORKERS}
    data = io.BytesIO()
    torch.save(state, data)
    path, previous = checkpoint_files(run_dir)
    write_file(path, data.getbuffer(), previous)


def read_checkpoint(path):
    """A checkpoint on the CPU. Raises UsageError. Nothing that the file holds is executed."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no checkpoint") from None
    except Exception as error:  # whatever is wrong with a file, torch.load has an exception for it
        what = f"truncated, or holds other things than a checkpoint ({type(error).__name__})"
        previous = checkpoint_files(path.parent)[1]
        other = f"; the one before it is {previous.name}" if previous.exists() else ""
        raise UsageError(f"{path}: is {what}{other}") from None
    if not isinstance(state, dict) or "args" not in state:
        raise UsageError(f"{path}: is no checkpoint of {Path(__file__).name}")
    return state


def last_checkpoint(run_dir):
    """The last checkpoint of this worker. Raises UsageError."""
    path, previous = checkpoint_files(run_dir)  # killed between two renames, it has only the latter
    return read_checkpoint(path if path.exists() or not previous.exists() else previous)


def load_checkpoint(args):
    """The last checkpoint of args.resume that all workers have. Raises UsageError if none fits.

    All workers must reach the same exchanges: a problem of one is kept until `refuse_together`.
    """
    state, problem = {"checkpoints": 0}, ""
    try:
        if not os.access(args.resume, os.W_OK):
            raise UsageError(f"--resume {args.resume}: cannot write there")
        if RANK == 0:
            lock(args.resume)
        state = last_checkpoint(args.resume)
        check_flags(args, state["args"])
        check_same_run(args, state["args"])
        number = state["num_workers"]
        if number != NUM_WORKERS:
            raise UsageError(f"--resume {args.resume}: has {number} workers, not {NUM_WORKERS}")
    except UsageError as error:
        problem = str(error)
    refuse_together(problem)
    # A worker may have been killed before it could replace its last checkpoint by the next.
    path, previous = checkpoint_files(args.resume)
    if state["checkpoints"] > min(worker_concat([state["checkpoints"]])) and previous.exists():
        os.replace(previous, path)
        state = read_checkpoint(path)
    if len(set(worker_concat([(state["checkpoints"], state["iteration"])]))) > 1:
        raise UsageError(f"--resume {args.resume}: its workers have no checkpoint in common")
    return state


def restore(args, state, parts):
    """Put every part into the state that it has in a checkpoint."""
    for name, part in parts.items():
        part.load_state_dict(state[name])
    if RANK == 0:
        write_flags(args.resume, args)


# ============================== Environments =====================================================


def make_envs(args):
    """N Procgen games behind Procgen's own interface (gym3), which steps them all in C++:

    `observe()` -> rewards (N,) of the last step, {"rgb": (N, 64, 64, 3) uint8}, first (N,) bool:
    whether an observation is the first of its episode; `act(actions)`, (N,) in 0..14; `close()`.
    A game that ends starts anew in the same step.
    """
    from procgen import ProcgenGym3Env

    levels = dict(num_levels=args.num_levels, start_level=args.start_level)
    return ProcgenGym3Env(
        num=args.num_envs,
        env_name=args.env_id,
        distribution_mode=args.distribution_mode,
        num_threads=args.num_threads,
        rand_seed=worker_seed(args),
        **({} if args.distribution_mode == "exploration" else levels),
    )


class Episodes(Stateful):
    """Returns and lengths: of the episode that each environment is in, and of the last 100."""

    def __init__(self, num_envs):
        self.running = torch.zeros(num_envs, 2, dtype=torch.float64)
        self.ended, self.last, self.count = [], [], 0

    def step(self, rewards, first):
        """Rewards (N,) and whether an episode ended with them (N,), as `observe` returns them.

        Every episode that ends counts, also when several do.
        """
        self.running += torch.from_numpy(np.stack([rewards, np.ones_like(rewards)], axis=1))
        self.ended += self.running[first].tolist()
        self.running[first] = 0

    def result(self):
        """Mean return of the last 100 episodes, in words."""
        return f"return {np.mean(self.last, axis=0)[0]:.2f}" if self.last else "no episode ended"

    def scalars(self, test=""):
        """Number of episodes so far, mean return and mean length of the last 100, all workers'."""
        ended, self.ended = worker_concat(self.ended), []
        self.count += len(ended)
        self.last = (self.last + ended)[-100:]
        scalars = {"episodes": self.count}
        if self.last:
            mean_return, mean_length = np.mean(self.last, axis=0)
            scalars |= {"episodic_return": mean_return, "episodic_length": mean_length}
        return {f"charts/{test}{name}": value for name, value in scalars.items()}


class HeldOutGames(Games):
    """Environments over all levels, for the policy in training to be tested on.

    They have random numbers of their own, so that the training is the same with and without them.
    """

    def __init__(self, args, device):
        games = dict(num_envs=args.num_test_envs, num_levels=0, start_level=0)
        games["seed"] = args.seed + 5_000  # between those of two workers
        super().__init__(make_envs(replace(args, **games)))
        self.device, self.episodes = device, Episodes(args.num_test_envs)
        self.generator = torch.Generator(device).manual_seed(worker_seed(args))

    @torch.no_grad()
    def step(self, agent):
        """One step in each environment."""
        obs = to_device(torch.from_numpy(self.envs.observe()[1]["rgb"]), self.device)
        self.envs.act(sample(agent(obs)[0], self.generator).squeeze(1).cpu().numpy())
        rewards, _, first = self.envs.observe()
        self.episodes.step(rewards, first)

    def state_dict(self):
        random_state = self.generator.get_state()
        return {
            **super().state_dict(),
            "episodes": self.episodes.state_dict(),
            "random": random_state,
        }

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.episodes.load_state_dict(state["episodes"])
        self.generator.set_state(state["random"])


# ============================== Running ==========================================================

SIGNALS = []  # that asked this run to end


def note_signal(number, frame):
    """End the run after this iteration, or, when it is the second signal, at once."""
    SIGNALS.append(number)
    # torchrun passes on a Ctrl-C and adds a SIGTERM: for its workers that is not a second one.
    if len(SIGNALS) > (1 if NUM_WORKERS == 1 else 2):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    name = signal.Signals(number).name
    line = f"\n{name}: the run ends after this iteration, with a checkpoint; once more: at once\n"
    if NUM_WORKERS > 1 and number != getattr(signal, "SIGUSR1", None):
        line += (
            "torchrun waits 30 s for that, and then kills it; SIGUSR1 to the workers has no limit\n"
        )
    if RANK == 0:
        with contextlib.suppress(BrokenPipeError):  # after `| tee`, which has got the signal, too
            os.write(2, line.encode())


def resume_command(run_dir):
    """In words, what goes on with a run."""
    workers = f"torchrun --nproc-per-node {NUM_LOCAL_WORKERS}" if NUM_WORKERS > 1 else "python"
    return f"to go on: {workers} {shlex.quote(sys.argv[0])} --resume {shlex.quote(str(run_dir))}"


def keep_freed_memory():
    """Make glibc reuse large blocks, not return each to the system and clear a new one instead.

    The network's activations are such blocks, new ones in every micro-batch.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    m_trim_threshold, m_mmap_threshold = -1, -3  # from malloc.h
    if hasattr(libc, "mallopt") and libc.mallopt(m_mmap_threshold, 2**25):
        libc.mallopt(m_trim_threshold, 2**31 - 1)


def resident_size():
    """Bytes of memory that this process has for itself; 0 if unknown."""
    if sys.platform != "linux":
        return 0
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def trim_memory(limit):
    """If this process has grown above a limit (bytes), return unused memory. Returns the limit.

    Until version 2.38, glibc may not find freed blocks again (its bug 14581): with 256
    environments, 6 GB of them were left by a rollout.
    """
    if resident_size() > limit and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
        return max(limit, 1.3 * resident_size())
    return limit


def memory_size():
    """Bytes of memory of this machine, or of this container where that is less."""
    if not hasattr(os, "sysconf"):  # Windows
        return math.inf
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes":
        limit = Path(file).read_text().strip() if Path(file).exists() else "max"
        sizes += [int(limit)] if limit.isdigit() else []
    return min(sizes)


def open_run(args, purge_step):
    """The directory of the run and its TensorBoard writer, which only the worker with rank 0 has.

    A new run gets runs/<env>__<exp>__<seed>__<time>/ with args.json. A resumed one goes on in its
    own; what it had logged at `purge_step` or later is void. Raises UsageError if the directory
    exists already or cannot be made.
    """
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    run_dir, writer = Path(args.resume or Path("runs", name)), None
    if RANK == 0:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, --help needs it not

        try:
            run_dir.mkdir(parents=True, exist_ok=bool(args.resume))
        except OSError as error:
            reason = f"cannot make the run directory: {error.strerror}"
            raise UsageError(f"{run_dir}: {reason}") from None
        if args.track:
            import wandb

            project, entity, name = args.wandb_project_name, args.wandb_entity, run_dir.name
            run = dict(name=name, id=re.sub(r"\W", "-", name), resume="allow")
            wandb.init(project=project, entity=entity, **run, sync_tensorboard=True)
            wandb.config.update(asdict(args), allow_val_change=True)
        writer = SummaryWriter(run_dir.absolute(), purge_step=purge_step)
        if not args.resume:
            lock(run_dir)
            write_flags(run_dir, args)
            rows = [f"|{name}|{value}|" for name, value in asdict(args).items()]
            writer.add_text("hyperparameters", "\n".join(["|flag|value|", "|-|-|", *rows]))
            source = Path(__file__).read_text("utf-8")
            writer.add_text("source", f"```python\n{source}\n```")
    if NUM_WORKERS > 1:
        shared = [run_dir]
        dist.broadcast_object_list(shared)
        run_dir = shared[0]
    return run_dir, writer


def write_clip(run_dir, writer, frames, global_step):
    """Write every second of frames (T, 64, 64, 3) uint8 as a film, also to TensorBoard."""
    from PIL import Image
    from tensorboard.compat.proto.summary_pb2 import Summary

    frames = frames[::2].cpu().numpy()
    images = [Image.fromarray(frame).resize((128, 128), 0) for frame in frames]
    film = io.BytesIO()
    how = dict(save_all=True, append_images=images[1:], duration=2000 // 15, loop=0)
    images[0].save(film, "gif", **how)
    (run_dir / "clips").mkdir(exist_ok=True)
    write_file(run_dir / "clips" / f"{global_step}.gif", film.getbuffer())
    image = dict(height=128, width=128, colorspace=3, encoded_image_string=film.getvalue())
    clip = Summary(value=[Summary.Value(tag="clip", image=Summary.Image(**image))])
    writer.file_writer.add_summary(clip, global_step)
    writer.flush()


def log(writer, scalars, agent, global_step):
    """Write scalars to TensorBoard.

    Raises FloatingPointError, with its name and the step, for a scalar or weight gone wrong.
    """
    if writer:
        for name, value in scalars.items():
            writer.add_scalar(name, value, global_step)
        writer.flush()
    broken = [name for name, value in scalars.items() if not math.isfinite(value)]
    broken += [name for name, weight in agent.named_parameters() if not weight.isfinite().all()]
    if broken:
        raise FloatingPointError(f"{broken[0]} is NaN or infinite at step {global_step:,}")


def announce(line):
    """Print a line, once for all workers."""
    if RANK > 0:
        return
    try:
        print(line, flush=True)
    except BrokenPipeError:  # whoever read the output is gone
        if not SIGNALS:  # as after | head
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the checkpoint comes first


def report(progress, status, time_left=""):
    """Show the status in the progress bar, or as a line where there is no terminal to draw one."""
    progress.set_description_str(status)
    if progress.disable:
        announce(status + time_left)


# ============================== Network ==========================================================

OBS_SHAPE = (64, 64, 3)
NUM_ACTIONS = 15


def normed(layer, norm):
    """Scale each output row of the layer's weight to L2 norm `norm` and zero its bias.

    Published code: NormedConv2d and NormedLinear in torch_util.py.
    """
    with torch.no_grad():
        for row in layer.weight:
            row.mul_(norm / row.norm())
        layer.bias.zero_()
    return layer


def log_softmax(x):
    """log pi (B, A) as torch.distributions.Categorical computes it, which the published code uses.

    F.log_softmax rounds differently. Where a gradient should be zero, Adam's first step, which is
    lr * sign(gradient), makes a full step of that rounding.
    """
    return x - x.logsumexp(-1, keepdim=True)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), shape (B, C, H, W) in and out."""

    def __init__(self, channels):
        super().__init__()
        norm = (1 / (math.sqrt(3) * math.sqrt(2))) ** 0.5  # 3 stacks of 2 blocks
        self.conv0 = normed(nn.Conv2d(channels, channels, 3, padding=1), norm)
        self.conv1 = normed(nn.Conv2d(channels, channels, 3, padding=1), norm)

    def forward(self, x):
        return x + self.conv1(F.relu(self.conv0(F.relu(x)), inplace=True))


class ConvStack(nn.Module):
    """Convolution, max pool that halves H and W, two residual blocks."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = normed(nn.Conv2d(in_channels, out_channels, 3, padding=1), 1.0)
        self.block0 = ResidualBlock(out_channels)
        self.block1 = ResidualBlock(out_channels)

    def forward(self, x):
        x = F.max_pool2d(self.conv(x), kernel_size=3, stride=2, padding=1)
        return self.block1(self.block0(x))


class Encoder(nn.Module):
    """IMPALA CNN (Espeholt et al. 2018), in bfloat16 if wanted. Published code: impala_cnn.py."""

    def __init__(self, bf16=False):
        super().__init__()
        self.bf16 = bf16
        self.stack0 = ConvStack(3, 16)
        self.stack1 = ConvStack(16, 32)
        self.stack2 = ConvStack(32, 32)
        self.dense = normed(nn.Linear(32 * 8 * 8, 256), 1.4)

    def forward(self, obs):
        """obs (B, 64, 64, 3) uint8 -> features (B, 256) float32."""
        # permute only changes the view: (B, H, W, C) in memory is what PyTorch calls channels-last.
        x = obs.permute(0, 3, 1, 2).to(torch.bfloat16 if self.bf16 else torch.float32) / 255
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bf16):
            x = self.stack2(self.stack1(self.stack0(x)))  # (B, 32, 8, 8)
            x = F.relu(x).flatten(1)  # (B, 2048), in (C, H, W) order
            return F.relu(self.dense(x)).float()


class Agent(nn.Module):
    """One encoder with a policy head and a value head."""

    def __init__(self, bf16=False):
        super().__init__()
        self.encoder = Encoder(bf16)
        self.policy_head = normed(nn.Linear(256, NUM_ACTIONS), 0.1)
        self.value_head = normed(nn.Linear(256, 1), 0.1)

    def forward(self, obs):
        """obs (B, 64, 64, 3) uint8 -> log pi(.|s) (B, A), V(s) (B,)."""
        x = self.encoder(obs)
        return log_softmax(self.policy_head(x)), self.value_head(x).squeeze(-1)


# ============================== Equations ========================================================


def sample(logits, generator=None):
    """Actions drawn from pi; log pi (B, A) -> (B, 1).

    By the Gumbel-max trick: log pi plus Gumbel noise is largest at a sample of pi. Unlike
    torch.multinomial, it needs no synchronization with a GPU, and leaves a NaN for `log` to report.
    """
    noise = -torch.empty_like(logits).exponential_(generator=generator).log()
    return (logits + noise).argmax(1, keepdim=True)


class RewardNormalizer(Stateful):
    """Divides rewards by the running standard deviation of the discounted return, clips at +-10.

    The return looks back: R_t = r_t + 0.99 (1 - done_t) R_{t-1}; its discount is not --gamma.
    Mean and variance run over all returns since the start. The mean is not subtracted from the
    rewards. Published code: reward_normalizer.py.
    """

    def __init__(self, num_envs):
        self.returns = torch.zeros(num_envs)  # R of the last step, carried from rollout to rollout
        self.mean, self.var, self.count = 0.0, 1.0, 1e-4

    def __call__(self, rewards, dones):
        """rewards (N, T), dones (N, T) -> normalized rewards (N, T)."""
        returns = torch.empty_like(rewards)
        for t in range(rewards.shape[1]):
            self.returns = rewards[:, t] + 0.99 * (1 - dones[:, t]) * self.returns
            returns[:, t] = self.returns
        # Chan et al.: merge the moments of this rollout into the running ones.
        batch_mean, batch_var = (x.item() for x in moments(returns))
        batch_count = NUM_WORKERS * returns.numel()
        delta = batch_mean - self.mean
        count = self.count + batch_count
        squares = self.var * self.count + batch_var * batch_count
        self.var = (squares + delta**2 * self.count * batch_count / count) / count
        self.mean += delta * batch_count / count
        self.count = count
        return (rewards / math.sqrt(self.var + 1e-8)).clamp(-10, 10)


def gae(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    """Generalized advantage estimation (Schulman et al. 2016, equation 16), cut off at step T.

    rewards, values, dones (N, T), next_value, next_done (N,) -> advantages, returns (N, T).
    dones[:, t] is 1 where the observation of step t is the first of an episode; next_* belong to
    step T, the first after the rollout. The returns are the value targets V_targ = A + V.
    Published code: ppo.py, compute_gae.
    """
    advantages, advantage = torch.zeros_like(rewards), 0.0
    for t in reversed(range(rewards.shape[1])):
        not_done = 1 - next_done
        delta = rewards[:, t] + gamma * not_done * next_value - values[:, t]  # delta_t
        advantage = delta + gamma * gae_lambda * not_done * advantage  # A_t, from A_{t+1}
        advantages[:, t] = advantage
        next_value, next_done = values[:, t], dones[:, t]
    return advantages, advantages + values


def normalize(advantages):
    """Advantages with mean 0 and (biased) standard deviation 1 over the batch of all workers."""
    mean, var = moments(advantages)
    return (advantages - mean) / (var.sqrt() + 1e-8)


def clipped_surrogate(ratio, advantages, clip_coef):
    """L^clip = E[min(r A, clip(r, 1 - epsilon, 1 + epsilon) A)], to be maximized; (B,) -> ().

    Schulman et al. 2017, equation 7. Published code: no clipping if epsilon is 0.
    """
    surrogate = ratio * advantages
    if clip_coef > 0:
        clipped_ratio = ratio.clamp(1 - clip_coef, 1 + clip_coef)
        surrogate = torch.min(surrogate, clipped_ratio * advantages)
    return surrogate.mean()


def entropy(logits):
    """S[pi] = E[-sum_a pi(a|s) log pi(a|s)] in nats; log pi (B, A) -> ()."""
    return -(logits.softmax(-1) * logits).sum(-1).mean()


def value_loss(values, returns):
    """L^value = 1/2 E[(V(s) - V_targ)^2], from the paper; (B,) -> ()."""
    return 0.5 * (values - returns).square().mean()


def explained_variance(values, returns):
    """1 - Var[V_targ - V] / Var[V_targ]; 0 where the targets do not vary."""
    (mean, variance), unexplained = moments(returns), moments(returns - values)[1]
    constant = variance <= 1e-12 * mean.square()  # the variance is rounding
    return 0.0 if constant else (1 - unexplained / variance).item()


# ============================== Training =========================================================


def rows(trajectories, num_steps):
    """Row numbers, in a flattened (N, T) batch, of whole trajectories: (M,) -> (M * T,)."""
    return (trajectories[:, None] * num_steps + torch.arange(num_steps)).flatten()


def minibatches(num_envs, num_steps, num_minibatches, minibatch_by):
    """One epoch, freshly shuffled: row numbers of a flattened (N, T) batch, a minibatch per row."""
    if minibatch_by == "trajectories":
        inds = rows(torch.randperm(num_envs), num_steps)
    else:
        inds = torch.randperm(num_envs * num_steps)
    return inds.reshape(num_minibatches, -1)


def to_device(x, device):
    """x on the device. From pinned memory a GPU fetches it while this program goes on."""
    return x if x.device == device else x.pin_memory().to(device, non_blocking=True)


def micro_batches(batch, mb_inds, args, device):
    """A minibatch in parts: small activations stay in a CPU's cache, and need little memory.

    batch: {name: (rows, ...)}; mb_inds (B,) row numbers, on the CPU. Yields {name: (b, ...)} on the
    device and its share b / B of the minibatch, by which its mean loss counts.
    """
    small = 128 if args.bf16 else 64
    size = args.micro_batch_size or (small if device.type == "cpu" else len(mb_inds))
    for inds in mb_inds.split(size):
        mb = {name: to_device(x[to_device(inds, x.device)], device) for name, x in batch.items()}
        yield mb, len(inds) / len(mb_inds)


def add_up(metrics, share, **values):
    """Add a micro-batch's share to the means over its minibatch, without gradients."""
    for name, value in values.items():
        metrics[name] += share * value.detach()


def optimizer_step(agent, optimizer, max_grad_norm):
    """One step of the optimizer on the gradient of a minibatch, averaged over the workers."""
    if NUM_WORKERS > 1:
        grads = [weight.grad for weight in agent.parameters() if weight.grad is not None]
        flat = worker_mean(torch.cat([grad.flatten() for grad in grads]))
        for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(part.view_as(grad))
    if max_grad_norm > 0:
        nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm)
    optimizer.step()


def policy_phase(agent, optimizers, batch, args, tick=lambda passes: None):
    """Update the agent on one rollout: E epochs on L^clip + beta_S S - L^value.

    Schulman et al. 2017, equation 9.
    batch: obs (N, T, 64, 64, 3), actions, logprobs, advantages, returns (N, T). Calls tick(passes)
    after every micro-batch; forward and backward pass count as 3 forward passes. Returns the
    metrics of each gradient step.
    """
    num_envs, num_steps = batch["actions"].shape
    device = batch["actions"].device
    batch = {name: x.flatten(0, 1) for name, x in batch.items()}  # (N * T, ...)
    metrics = []
    for _ in range(args.update_epochs):
        b_inds = minibatches(num_envs, num_steps, args.num_minibatches, args.minibatch_by)
        for mb_inds in b_inds:
            optimizers["policy"].zero_grad()
            mb_metrics = defaultdict(float)
            for mb, share in micro_batches(batch, mb_inds, args, device):
                logits, values = agent(mb["obs"])
                logratio = logits.gather(1, mb["actions"][:, None]).squeeze(1) - mb["logprobs"]
                ratio = logratio.exp()  # r = pi(a|s) / pi_old(a|s)

                L_clip = clipped_surrogate(ratio, mb["advantages"], args.clip_coef)
                S = entropy(logits)
                L_value = value_loss(values, mb["returns"])
                loss = -L_clip - args.ent_coef * S + args.vf_coef * L_value
                (share * loss).backward()
                tick(3 * len(ratio))

                add_up(mb_metrics, share, value_loss=L_value)
                add_up(mb_metrics, share, policy_loss=-L_clip, entropy=S)
                clipfrac = ((ratio - 1).abs() > args.clip_coef).float().mean()
                # Two estimates of KL[pi_old, pi], http://joschu.net/blog/kl-approx.html, named as
                # in CleanRL
                kl, old_kl = (ratio - 1 - logratio).mean(), -logratio.mean()
                add_up(mb_metrics, share, approx_kl=kl, old_approx_kl=old_kl, clipfrac=clipfrac)
            optimizer_step(agent, optimizers["policy"], args.max_grad_norm)
            metrics.append(mb_metrics)
    return metrics


def means(metrics, prefix):
    """Means over gradient steps. Until here metrics stay on the GPU, so that no step waits."""
    columns = defaultdict(list)
    for mb_metrics in metrics:
        for name, value in mb_metrics.items():
            columns[prefix + name].append(value)
    return {name: worker_mean(torch.stack(x).mean()).item() for name, x in columns.items()}


def train(args):
    """Train an agent and return it. Everything else it makes is in runs/.

    Raises UsageError, before it builds or writes anything, if `args` or the run to resume are
    unusable, FloatingPointError if a loss or weight becomes NaN or infinite, and Stopped after a
    signal.
    """
    # -------------------------------------------------------------------------------- Setup
    check_args(args)
    device = torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")
    if NUM_WORKERS > 1:
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    batch_size = NUM_WORKERS * args.num_envs * args.num_steps
    num_iterations = math.ceil(args.total_timesteps / batch_size)
    total_steps = num_iterations * batch_size
    num_epochs = args.update_epochs
    num_updates = num_iterations * num_epochs * args.num_minibatches
    work = total_steps * (1 + 3 * num_epochs)  # in forward passes; forward and backward are 3
    obs_size = args.num_envs * args.num_steps * math.prod(OBS_SHAPE)  # bytes, of one worker
    memory = memory_size() / NUM_LOCAL_WORKERS
    if obs_size > memory:
        raise UsageError(
            f"--num-envs {args.num_envs}, --num-steps {args.num_steps}: lower them; a rollout's "
            f"images need {obs_size / 1e9:,.2f} GB, the memory has {memory / 1e9:,.2f} GB"
        )

    last = load_checkpoint(args) if args.resume is not None else None
    counters = dict(iteration=0, global_step=0, logged_step=0, passes=0, checkpoints=0)
    counters = {name: last[name] if last else value for name, value in counters.items()}
    run_dir, writer = open_run(args, last["logged_step"] + 1 if last else None)
    keep_freed_memory()
    random.seed(worker_seed(args))  # unused here, as is NumPy's; for those who change this script
    np.random.seed(worker_seed(args))
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    agent = Agent(args.bf16).to(device, memory_format=torch.channels_last)
    optimizers = {"policy": torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-8)}
    if args.compile:
        fuse = dict(mode="reduce-overhead", dynamic=False)  # with CUDA graphs
        agent.forward = torch.compile(agent.forward, **fuse)
    # Again: building the network drew random numbers, and PPO and PPG shall draw the same actions.
    torch.manual_seed(worker_seed(args))

    envs = make_envs(args)
    test_games = HeldOutGames(args, device) if args.num_test_envs else None
    levels = f"levels {args.start_level} to {args.start_level + args.num_levels - 1}"
    everything = "one fixed level" if args.distribution_mode == "exploration" else "all levels"
    workers = f"{NUM_WORKERS} workers x " if NUM_WORKERS > 1 else ""
    announce(
        f"{args.env_id}, {args.distribution_mode}, {levels if args.num_levels else everything}, "
        f"seed {args.seed}, on {device}\n"
        f"iterations: {num_iterations:,} of {workers}{args.num_envs} x {args.num_steps} steps "
        f"({total_steps:,} steps, {num_updates:,} gradient steps)\n"
        f"{'continued after' if last else 'written to'} {run_dir}"
    )
    if args.compile and device.type == "cpu":
        announce("warning: --compile is for GPUs; on a CPU it was slower than without")
    if args.start_level and not args.num_levels:
        announce(f"warning: --start-level {args.start_level} has no effect with --num-levels 0")

    # Storage of one rollout. Rewards and dones stay on the CPU until it is complete.
    shape = (args.num_envs, args.num_steps)
    obs = torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logprobs, values = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
    rewards, dones = torch.zeros(shape), torch.zeros(shape)

    reward_normalizer, episodes = RewardNormalizer(args.num_envs), Episodes(args.num_envs)
    parts = {"agent": agent, "reward_normalizer": reward_normalizer, "episodes": episodes}
    parts |= {f"{name} optimizer": optimizer for name, optimizer in optimizers.items()}
    parts |= {"games": Games(envs), "random": Random()}
    parts |= {"test_games": test_games} if test_games else {}
    if last:
        restore(args, last, parts)
    bar_format = "{percentage:3.0f}%|{bar:10}| {desc} [{elapsed}<{remaining}]"
    quiet = True if RANK > 0 else None  # None: a bar only on a terminal
    progress = tqdm(total=work, initial=counters["passes"], bar_format=bar_format, disable=quiet)
    start_time, start_step, start_passes = time.time(), counters["global_step"], counters["passes"]
    global_step = start_step
    _, observation, first = envs.observe()

    memory_limit = math.inf

    def tick(passes):
        nonlocal memory_limit
        counters["passes"] += NUM_WORKERS * passes
        progress.update(NUM_WORKERS * passes)
        memory_limit = trim_memory(memory_limit)

    def checkpoint(logged_step):
        counters.update(logged_step=logged_step, checkpoints=counters["checkpoints"] + 1)
        save_checkpoint(run_dir, args, parts, counters)

    for iteration in range(counters["iteration"] + 1, num_iterations + 1):
        if args.anneal_lr:
            fraction = 1 - (iteration - 1) / num_iterations
            for optimizer in optimizers.values():
                optimizer.param_groups[0]["lr"] = fraction * optimizer.defaults["lr"]

        # ---------------------------------------------------------------------------- Rollout
        for step in range(args.num_steps):
            next_obs = to_device(torch.from_numpy(observation["rgb"]), device)
            obs[:, step] = next_obs
            dones[:, step] = torch.from_numpy(first)  # 1 where next_obs starts an episode
            with torch.no_grad():
                logits, values[:, step] = agent(next_obs)
                action = sample(logits)  # (N, 1)
            actions[:, step] = action.squeeze(1)
            logprobs[:, step] = logits.gather(1, action).squeeze(1)

            envs.act(action.squeeze(1).cpu().numpy())
            reward, observation, first = envs.observe()
            rewards[:, step] = torch.from_numpy(reward)
            episodes.step(reward, first)
            if test_games:
                test_games.step(agent)
            tick(args.num_envs)
        global_step += batch_size

        # ------------------------------------------------------------------------- Advantages
        with torch.no_grad():
            next_value = agent(to_device(torch.from_numpy(observation["rgb"]), device))[1]
        scaled_rewards = reward_normalizer(rewards, dones).to(device)
        next_done = torch.from_numpy(first).float().to(device)
        advantages, returns = gae(
            scaled_rewards,
            values,
            dones.to(device),
            next_value,
            next_done,
            args.gamma,
            args.gae_lambda,
        )

        # ----------------------------------------------------------------------- Policy phase
        batch = {"obs": obs, "actions": actions, "logprobs": logprobs}
        batch |= {"advantages": normalize(advantages), "returns": returns}
        metrics = policy_phase(agent, optimizers, batch, args, tick)

        # ---------------------------------------------------------------------------- Logging
        scalars = means(metrics, "losses/")
        scalars["losses/explained_variance"] = explained_variance(values, returns)
        scalars["charts/learning_rate"] = optimizers["policy"].param_groups[0]["lr"]
        seconds = time.time() - start_time
        scalars["charts/SPS"] = (global_step - start_step) / seconds
        scalars |= episodes.scalars()
        scalars |= test_games.episodes.scalars("test_") if test_games else {}
        log(writer, scalars, agent, global_step)
        status = f"step {global_step:,}, {episodes.result()}, {scalars['charts/SPS']:,.0f} steps/s"
        passes_left = work - counters["passes"]
        seconds_left = round(seconds * passes_left / (counters["passes"] - start_passes))
        report(progress, status, f", {timedelta(seconds=seconds_left)} left")
        clips = args.capture_video and RANK == 0
        if clips and (iteration - 1) % math.ceil(num_iterations / 20) == 0:
            write_clip(run_dir, writer, obs[0], global_step)

        if memory_limit == math.inf:  # the first iteration has shown how much is needed
            memory_limit = 1.3 * resident_size()

        # ------------------------------------------------------------------------- Checkpoint
        counters.update(iteration=iteration, global_step=global_step)
        stopped = any_worker(SIGNALS, device)
        due = args.checkpoint_interval and iteration % args.checkpoint_interval == 0
        if due or stopped or iteration == num_iterations:
            checkpoint(global_step)
        if stopped and iteration < num_iterations:
            raise Stopped(resume_command(run_dir))

    # ---------------------------------------------------------------------------------- End
    progress.close()
    envs.close()
    if writer:
        writer.close()
    if NUM_WORKERS > 1:
        dist.destroy_process_group()
    announce(
        f"finished {global_step:,} steps and {episodes.count:,} episodes: {episodes.result()}; "
        f"see {run_dir}"
    )
    return agent


def main():
    """Run the command line. Returns the exit status."""
    for name in "SIGINT", "SIGTERM", "SIGUSR1":
        if hasattr(signal, name):  # Windows lacks the last
            signal.signal(getattr(signal, name), note_signal)
    everyone = False  # whether not only the worker with rank 0 speaks
    try:
        train(parse_args())
        return 0
    except Stopped as stop:
        # As shells report a signal. If another worker has got it, this one knows no number.
        status = 128 + (SIGNALS or [signal.SIGTERM])[0]
        line = f"stopped; {stop}"
    except UsageError as error:
        status, line = 2, str(error)
    except FloatingPointError as error:
        status, line = 1, f"stopped, {error}; checkpoints, if there are any, are from before it"
    except BrokenPipeError:  # whoever read the output is gone, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13
    except OSError as error:
        full = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
        if error.errno not in (*full, errno.EROFS, errno.EACCES, errno.ENOENT):
            raise  # not about the disk or a directory that is gone
        status, line = 1, f"stopped, cannot write: {error}; the last checkpoint, if any, is kept"
        everyone = True
    except (MemoryError, RuntimeError) as error:
        out_of_memory = isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError))
        if not out_of_memory and not re.search("can(no|')t allocate memory", str(error), re.I):
            raise
        status, line = 1, "out of memory: lower --micro-batch-size or --num-envs"
        everyone = True
    if RANK == 0 or everyone:
        under_the_bar = "\n" if sys.stderr.isatty() and status != 2 else ""
        with contextlib.suppress(BrokenPipeError):
            print(f"{under_the_bar}{Path(__file__).name}: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
