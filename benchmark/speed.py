"""Speed and memory, measured in pairs: run it through benchmark/speed.sh on an idle machine.

1. Whole processes on the same work, ours and CleanRL's in turn: N = 64, T = 128, minibatches of
   2,048 states, 3 epochs (PPO) or 1 + 6 auxiliary epochs (PPG, `detach`, N_pi = 1).
2. Where the time of our runs goes, per architecture.
3. How much of an update its convolutions and matrix products alone would take.

Writes OUT.json and OUT.md.
"""

import contextlib
import importlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
NUM_ENVS, NUM_STEPS, NUM_MINIBATCHES = 64, 128, 4
WORK = f"--num-envs {NUM_ENVS} --num-steps {NUM_STEPS} --num-minibatches {NUM_MINIBATCHES}".split()
BATCH_SIZE = NUM_ENVS * NUM_STEPS
# The network's channels in and out, height and width; then four in the residual blocks.
STACKS = [((3, 16, 64), (16, 16, 32)), ((16, 32, 32), (32, 32, 16)), ((32, 32, 16), (32, 32, 8))]
CONVOLUTIONS = [shape for first, block in STACKS for shape in (first, *[block] * 4)]


@dataclass
class Args:
    cleanrl: str = ""
    """Python of an environment with cleanrl==1.2.0; empty = no comparison"""
    repeats: int = 3
    """runs of each program; the median counts"""
    iterations: int = 3
    """iterations of rollout and update in each run"""
    out: str = str(ROOT / "benchmark" / "results" / "speed")
    """where the table goes, without .json and .md"""


def timed(command, last_words=None, times=0):
    """Seconds and peak memory (bytes) of a process, which must succeed.

    With `last_words`, it is ended as soon as it has printed so many lines with these words.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors)
        for line in process.stdout:
            times -= last_words is not None and last_words in line.decode()
            if last_words and times == 0:
                process.kill()
                break
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        errors.seek(0)
        if times or os.waitstatus_to_exitcode(status) != (-signal.SIGKILL if last_words else 0):
            sys.exit(f"{' '.join(command)}\n{errors.read().decode()}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def programs(args):
    """Name -> what `timed` takes. All of a group do the same work."""
    steps = BATCH_SIZE * args.iterations
    theirs = [*WORK, "--total-timesteps", str(steps)]
    # CleanRL ends with an auxiliary phase, the published code and ours do not: so ours are given
    # one more iteration, and ended after the auxiliary phase before it.
    ppg = [*WORK, "--total-timesteps", str(steps + BATCH_SIZE), "--arch", "detach", "--n-pi", "1"]
    ours = {"PPO": ["ppo_procgen.py", *theirs], "PPG": ["ppg_procgen.py", *ppg]}
    groups = {}
    for name, (script, *flags) in ours.items():
        command = [sys.executable, str(ROOT / script), *flags]
        end = ("auxiliary epoch 6", args.iterations) if name == "PPG" else ()
        groups[name] = {
            "ours, float32": (command, *end),
            "ours, bf16": ([*command, "--bf16"], *end),
        }
    if args.cleanrl:
        python = str(Path(args.cleanrl).absolute())
        run = [python, "-m", "cleanrl.ppo_procgen", *theirs]
        groups["PPO"]["CleanRL"] = (run,)
        run = [python, "-m", "cleanrl.ppg_procgen", *theirs, "--n-iteration", "1"]
        groups["PPG"]["CleanRL"] = (run,)
    return steps, groups


def compare(args):
    """Rows: algorithm, program, steps/s (median), ratio to CleanRL (median of pairs), peak GB."""
    steps, groups = programs(args)
    rows = []
    for algorithm, commands in groups.items():
        runs = {name: [] for name in commands}
        for _ in tqdm(range(args.repeats), desc=algorithm):
            for name, command in commands.items():  # in turn, so that a slow minute hits all
                runs[name].append(timed(*command))
        for name, results in runs.items():
            row = {"algorithm": algorithm, "program": name}
            row["steps/s"] = statistics.median(steps / seconds for seconds, _ in results)
            if "CleanRL" in runs:
                pairs = zip(runs["CleanRL"], results, strict=True)
                row["times CleanRL"] = statistics.median(a[0] / b[0] for a, b in pairs)
            row["peak GB"] = max(memory for _, memory in results) / 1e9
            rows.append(row)
    return rows


def train_quietly(module, flags):
    """Train in this process, without output, in a directory that is deleted afterwards."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        os.chdir(folder)
        try:
            module.train(module.parse_args(flags))
        finally:
            os.chdir(here)


def write_report(out, report, text):
    """Write OUT.json and OUT.md, and print the latter."""
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
    out.with_suffix(".md").write_text(text)
    print(text)


def breakdown(script, flags):
    """Seconds per 1,000 environment steps in each part.

    Of a run of two iterations: with N_pi = 1, the auxiliary phase between them is that of one.
    """
    module = importlib.import_module(script)
    spent = {}

    def clocked(name):
        function = getattr(module, name)

        def run(*arguments):
            start = time.perf_counter()
            result = function(*arguments)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - start
            return result

        return patch.object(module, name, run)

    names = ["policy_phase", "old_policy_logits", "auxiliary_epoch"]
    names = [name for name in names if hasattr(module, name)]
    argv = [*WORK, "--total-timesteps", str(2 * BATCH_SIZE), *flags]
    with contextlib.ExitStack() as patches:
        for name in names:
            patches.enter_context(clocked(name))
        start = time.perf_counter()
        train_quietly(module, argv)
        total = time.perf_counter() - start
    parts = {"rollout and the rest": (total - sum(spent.values())) / 2}
    parts["policy_phase"] = spent.pop("policy_phase") / 2
    parts |= spent
    row = {"program": f"{script} {' '.join(flags)}"}
    row |= {name: 1000 * seconds / BATCH_SIZE for name, seconds in parts.items()}
    row["all"] = sum(1000 * seconds / BATCH_SIZE for seconds in parts.values())
    return row


def median_time(function, repeats=15):
    """Median seconds of a call, after two to warm up."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def kernels(bf16):
    """States per second: PPO's update, the bare network, and its kernels alone."""
    batch = 128 if bf16 else 64  # as the scripts' micro-batches on a CPU
    ppo = importlib.import_module("ppo_procgen")
    ppo.keep_freed_memory()
    dtype = torch.bfloat16 if bf16 else torch.float32
    forward = backward = 0.0
    for first, (channels, out, size) in enumerate(CONVOLUTIONS):
        layout = dict(memory_format=torch.channels_last)
        x = torch.randn(batch, channels, size, size).to(dtype).to(**layout)
        weight = torch.randn(out, channels, 3, 3).to(dtype).to(**layout)
        bias, grad = torch.randn(out).to(dtype), torch.randn(batch, out, size, size).to(dtype)
        grad = grad.to(**layout)
        mask = [first > 0, True, True]  # no gradient of the images
        rest = ([out], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)
        forward += median_time(lambda x=x, w=weight, b=bias: F.conv2d(x, w, b, padding=1))
        backward += median_time(
            lambda g=grad, x=x, w=weight, r=rest: torch.ops.aten.convolution_backward(g, x, w, *r)
        )
    x, weight = torch.randn(batch, 2048).to(dtype), torch.randn(256, 2048).to(dtype)
    grad = torch.randn(batch, 256).to(dtype)
    forward += median_time(lambda: x @ weight.T)
    backward += median_time(lambda: (grad @ weight, grad.T @ x))

    agent = ppo.Agent(bf16).to(memory_format=torch.channels_last)
    obs = torch.randint(0, 256, (batch, 64, 64, 3), dtype=torch.uint8)

    def network():
        logits, values = agent(obs)
        (logits[:, 0].mean() + values.mean()).backward()

    def inference():
        with torch.no_grad():
            agent(obs[:NUM_ENVS])

    states = 2048
    rollout = {
        "obs": obs.repeat(states // batch, 1, 1, 1).unflatten(0, (NUM_ENVS, -1)),
        "actions": torch.randint(0, 15, (states,)).unflatten(0, (NUM_ENVS, -1)),
    }
    for name in "logprobs", "advantages", "returns":
        rollout[name] = torch.randn(NUM_ENVS, states // NUM_ENVS)
    args = ppo.Args(num_minibatches=1, update_epochs=1, bf16=bf16)
    optimizers = {"policy": torch.optim.Adam(agent.parameters(), lr=0.0)}
    update = median_time(lambda: ppo.policy_phase(agent, optimizers, rollout, args), repeats=3)
    row = {"precision": "bf16" if bf16 else "float32"}
    row["kernels, states/s"] = batch / (forward + backward)
    row["network, states/s"] = batch / median_time(network)
    row["update, states/s"] = states / update
    row["update / kernels, time"] = row["kernels, states/s"] / row["update, states/s"]
    row["inference, states/s"] = NUM_ENVS / median_time(inference)
    return row


def table(rows):
    """Rows of equal keys as Markdown."""
    keys = list(dict.fromkeys(key for row in rows for key in row))

    def cell(value):
        if not isinstance(value, float):
            return str(value)
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(cell(row.get(key, "")) for key in keys) + " |" for row in rows]
    return "\n".join(lines)


def main(args):
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "repeats": args.repeats,
        "iterations": args.iterations,
    }
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        machine["processor"] = next(line.split(": ")[1] for line in lines if "model name" in line)
    report = {"machine": machine, "comparison": compare(args)}
    report["breakdown"] = []
    for precision in (["--bf16"], []):
        report["breakdown"].append(breakdown("ppo_procgen", precision))
        for arch in "detach", "shared", "dual":
            flags = ["--arch", arch, "--n-pi", "1", *precision]
            report["breakdown"].append(breakdown("ppg_procgen", flags))
    report["kernels"] = [kernels(True), kernels(False)]
    text = f"""# Speed

{table([machine])}

## Whole processes on the same work

Medians of {args.repeats} runs of {BATCH_SIZE * args.iterations:,} steps in turn;
work as described in benchmark/speed.py.

{table(report["comparison"])}

## Where the time goes

Seconds per 1,000 environment steps, with an auxiliary phase of 6 epochs after every rollout.

{table(report["breakdown"])}

## The practical limit

Micro-batches of 128 states in bf16, of 64 in float32; inference with 64.

{table(report["kernels"])}
"""
    write_report(args.out, report, text)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__.split("\n", 1)[0]))
