"""Check both scripts on a GPU: run it through benchmark/gpu_check.sh.

1. Numerics: outputs against the CPU's, ratio 1 in the first minibatch, KL 0 in the first auxiliary
   one, micro-batches that add up to the minibatch; a fault ends the check with status 1.
2. Steps per second and peak GPU memory of PPO and PPG: float32, bf16, compiled, both; CleanRL's.
3. Real learning for the rest of the time: the return against steps.

Writes OUT.json and OUT.md.
"""

import contextlib
import importlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal
from unittest.mock import patch

import torch
import tyro

from speed import ROOT, table, train_quietly, write_report

SCRIPTS = "ppo_procgen", "ppg_procgen"


@dataclass
class Args:
    device: Literal["cuda", "cpu"] = "cuda"
    """where the scripts run"""
    quick: bool = False
    """the smallest sizes, to see that the check itself works"""
    minutes: float = 8.0
    """time for everything; learning gets what is left"""
    out: str = str(ROOT / "benchmark" / "results" / "gpu")
    """where the report goes, without .json and .md"""


def rollout(agent, device, num_envs=16, num_steps=16):
    """Random images with the actions, log-probabilities and values of the agent itself."""
    obs = torch.randint(0, 256, (num_envs, num_steps, 64, 64, 3), dtype=torch.uint8).to(device)
    with torch.no_grad():
        logits, values = agent(obs.flatten(0, 1))
    actions = (logits - torch.empty_like(logits).exponential_().log()).argmax(1)
    batch = {"obs": obs, "actions": actions, "logprobs": logits.gather(1, actions[:, None])}
    batch["returns"] = values + torch.randn_like(values)
    batch["advantages"] = torch.randn_like(values)
    return {n: x if n == "obs" else x.reshape(num_envs, num_steps) for n, x in batch.items()}


def numerics(script, device, bf16):
    """Gaps that should be 0 but for rounding, each with the largest allowed value."""
    module = importlib.import_module(script)
    torch.manual_seed(0)
    agent = module.Agent(bf16=bf16).to(memory_format=torch.channels_last)
    obs = torch.randint(0, 256, (64, 64, 64, 3), dtype=torch.uint8)
    with torch.no_grad():
        on_cpu = torch.cat([x.reshape(64, -1) for x in agent(obs)], 1)
        agent.to(device)
        gap = (
            torch.cat([x.reshape(64, -1) for x in agent(obs.to(device))], 1).cpu() - on_cpu
        ).abs()
    # TF32 has 11 bits, bfloat16 8; PyTorch's convolutions use TF32 where the GPU has it.
    gaps = {"outputs, GPU - CPU": (gap.max().item(), 0.05 if bf16 else 0.01)}

    batch = rollout(agent, device)
    sgd = torch.optim.SGD(agent.parameters(), lr=0.0)
    optimizers = dict.fromkeys(("policy", "value", "aux"), sgd)
    gradients = []
    for size in 256, 100:
        args = module.Args(num_minibatches=1, micro_batch_size=size)
        metrics = module.policy_phase(agent, optimizers, batch, args)
        kl = abs(metrics[0]["old_approx_kl"].item())
        gaps[f"log ratio, first minibatch, micro-batches of {size}"] = (kl, 5e-3 if bf16 else 1e-3)
        grads = [w.grad.flatten() for w in agent.parameters() if w.grad is not None]
        gradients.append(torch.cat(grads))
    gap = ((gradients[0] - gradients[1]).norm() / gradients[0].norm()).item()
    gaps["gradient of micro-batches - of the minibatch, relative"] = (gap, 0.05 if bf16 else 0.01)
    if hasattr(module, "auxiliary_epoch"):
        args = module.Args(aux_minibatch_rollouts=8)
        buffer = {name: batch[name] for name in ("obs", "returns")}
        buffer["old_logits"] = module.old_policy_logits(agent, buffer, args)
        kl = abs(module.auxiliary_epoch(agent, sgd, buffer, args)[0]["kl_loss"].item())
        gaps["KL, first auxiliary minibatch"] = (kl, 1e-3 if bf16 else 1e-5)
    name = f"{script}, {'bf16' if bf16 else 'float32'}"
    return [
        {"program": name, "gap": what, "is": f"{gap:.1e}", "at most": limit, "fine": gap <= limit}
        for what, (gap, limit) in gaps.items()
    ]


def run(script, flags, seconds=None):
    """Train in this process, at most for so long: [(seconds, step, scalars), ...] per iteration."""
    module, history = importlib.import_module(script), []
    log = module.log

    def spy(writer, scalars, agent, global_step):
        log(writer, scalars, agent, global_step)
        if "charts/SPS" in scalars:
            history.append((time.perf_counter(), global_step, scalars))
            if seconds and history[-1][0] - start > seconds:
                raise KeyboardInterrupt

    start = time.perf_counter()
    with patch.object(module, "log", spy), contextlib.suppress(KeyboardInterrupt):
        train_quietly(module, flags)
    return history


def speed(script, flags, device):
    """Steps per second from the first logged iteration to the last, and peak memory."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    history = run(script, flags)
    (start, first, _), (end, last, _) = history[0], history[-1]
    row = {"program": f"{script} {' '.join(flags)}", "steps/s": (last - first) / (end - start)}
    if device == "cuda":
        row["peak GPU GB"] = torch.cuda.max_memory_allocated() / 1e9
    return row


def cleanrl_speed(script, flags):
    """What CleanRL's script says itself at its end."""
    command = [sys.executable, "-m", f"cleanrl.{script}", *flags]
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return {
        "program": f"CleanRL {script}",
        "steps/s": float(re.findall(r"SPS: (\d+)", result.stdout)[-1]),
    }


def main(args):
    start = time.perf_counter()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_check: no GPU is there; --device cpu --quick tries the check itself")
    size = ["--num-envs", "64"]
    if args.quick:
        size = "--num-envs 8 --num-steps 16 --num-minibatches 4".split()
    device = [] if args.device == "cuda" else ["--no-cuda"]
    batch = 8 * 16 if args.quick else 64 * 256
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    report = {"machine": {"device": name, "torch": torch.__version__, "quick": args.quick}}
    report["numerics"] = [
        row for s in SCRIPTS for bf16 in (False, True) for row in numerics(s, args.device, bf16)
    ]
    print(table(report["numerics"]), flush=True)

    report["speed"] = []
    for script, more, iterations in (
        ("ppo_procgen", [], 6),
        ("ppg_procgen", ["--n-pi", "2"], 7),
        ("ppg_procgen", ["--n-pi", "2", "--arch", "detach"], 7),
    ):
        steps = ["--total-timesteps", str(batch * (3 if args.quick else iterations))]
        for options in [], ["--bf16"], ["--compile"], ["--bf16", "--compile"]:
            if args.quick and "--compile" in options and script == "ppg_procgen":
                continue  # minutes of compilation
            flags = [*size, *steps, *more, *options, *device]
            report["speed"].append(speed(script, flags, args.device))
            print(table(report["speed"][-1:]), flush=True)
    if find_spec("cleanrl") and not args.quick:
        steps = ["--num-envs", "64", "--total-timesteps", str(batch * 6)]
        report["speed"].append(cleanrl_speed("ppo_procgen", steps))

    left = 5 if args.quick else 60 * args.minutes - (time.perf_counter() - start) - 20
    history = run("ppo_procgen", [*size, "--bf16", *device], seconds=left)
    report["learning"] = [
        {"step": step, "return": float(scalars.get("charts/episodic_return", float("nan")))}
        for _, step, scalars in history[:: max(1, len(history) // 20)]
    ]
    text = "\n\n".join(
        [f"# GPU check\n\n{table([report['machine']])}"]
        + [
            f"## {key.capitalize()}\n\n{table(report[key])}"
            for key in ("numerics", "speed", "learning")
        ]
    )
    write_report(args.out, report, text + "\n")
    sys.exit(0 if all(row["fine"] for row in report["numerics"]) else 1)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__.split("\n", 1)[0]))
