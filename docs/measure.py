"""What the pages show and only the scripts can compute: python docs/measure.py

Writes docs/data/equations.json (examples computed with the scripts' functions, and which loss
reaches which part), pictures of the games in docs/static/games, and docs/data/broken.csv (runs with
planted faults on the tests' small game; minutes). Each can be asked for alone: equations, games,
broken. The results are committed; tests/test_docs.py says when the first and, among the slow tests,
the last is out of date.
"""

import contextlib
import csv
import importlib
import io
import json
import os
import sys
import tempfile
import types
from pathlib import Path

import torch

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
ppg_procgen = importlib.import_module("ppg_procgen")
scalars = importlib.import_module("run_log").scalars
TinyEnv = importlib.import_module("tiny_env").TinyEnv

DATA = DOCS / "data"
PARTS = "policy_encoder", "value_encoder", "policy_head", "value_head", "aux_value_head"


def gradient_flow(arch):
    """Loss -> the parts of the network that its gradient reaches."""
    torch.manual_seed(0)
    agent = ppg_procgen.Agent(arch)
    obs = torch.randint(256, (2, *ppg_procgen.OBS_SHAPE), dtype=torch.uint8)
    logits, values, aux_values = agent.with_aux_value(obs)
    old_logits, targets = torch.randn_like(logits).log_softmax(-1), torch.ones(2)
    losses = {
        "policy": ppg_procgen.clipped_surrogate(logits[:, 0].exp(), targets, 0.2),
        "entropy": ppg_procgen.entropy(logits),
        "kl": ppg_procgen.kl_divergence(old_logits, logits),
        "value": ppg_procgen.value_loss(values, targets),
        "aux": ppg_procgen.value_loss(aux_values, targets),
    }
    reached = {}
    for name, loss in losses.items():
        agent.zero_grad()
        loss.backward(retain_graph=True)
        moved = {
            parameter.split(".")[0]
            for parameter, weight in agent.named_parameters()
            if weight.grad is not None and weight.grad.any()
        }
        reached[name] = [part for part in PARTS if part in moved]
    return reached


def clip_cases(clip_coef=0.2):
    """Sign of the advantage -> the surrogate of one state and its gradient, for many ratios."""
    cases = {"clip_coef": clip_coef}
    for sign in 1, -1:
        ratio = torch.linspace(0.5, 1.5, 101, dtype=torch.float64, requires_grad=True)
        value = [
            ppg_procgen.clipped_surrogate(r[None], torch.tensor([float(sign)]), clip_coef)
            for r in ratio
        ]
        value = torch.stack(value)
        gradient = torch.autograd.grad(value.sum(), ratio)[0]
        columns = {"ratio": ratio, "value": value, "gradient": gradient}
        cases[str(sign)] = {
            name: [round(x, 6) for x in column.tolist()] for name, column in columns.items()
        }
    return cases


def gae_example():
    """Eight steps of one environment, with an episode that ends after the fourth."""
    example = {
        "rewards": [0, 0, 0, 1, 0, 0, 1, 0],
        "values": [0.3, 0.4, 0.5, 0.6, 0.2, 0.3, 0.4, 0.2],
        "dones": [0, 0, 0, 0, 1, 0, 0, 0],
        "next_value": 0.3,
        "gamma": 0.9,
        "gae_lambda": 0.9,
    }
    rows = [torch.tensor([example[name]], dtype=torch.float64) for name in ("rewards", "values")]
    dones = torch.tensor([example["dones"]], dtype=torch.float64)
    end = torch.tensor([example["next_value"]], dtype=torch.float64), torch.zeros(1)
    discounts = example["gamma"], example["gae_lambda"]
    advantages, returns = ppg_procgen.gae(*rows, dones, *end, *discounts)
    for name, column in ("advantages", advantages), ("returns", returns):
        example[name] = [round(x, 6) for x in column[0].tolist()]
    return example


def clip_walk(clip_coef=0.2, step_size=0.08, num_steps=4):
    """Gradient ascent on L^clip with two actions: logits (z, -z), advantages +1 and -1.

    The batch has each action once. A row for each step: z, both ratios, the gradient of z.
    """
    z, rows = torch.zeros((), dtype=torch.float64, requires_grad=True), []
    old = torch.full((2,), 0.5, dtype=torch.float64)
    for _ in range(num_steps + 1):
        ratio = torch.stack([z, -z]).softmax(0) / old
        surrogate = ppg_procgen.clipped_surrogate(ratio, torch.tensor([1.0, -1.0]), clip_coef)
        (gradient,) = torch.autograd.grad(surrogate, z)
        rows.append([round(x, 3) for x in (z.item(), *ratio.tolist(), gradient.item())])
        z = (z + step_size * gradient).detach().requires_grad_()
    return {"clip_coef": clip_coef, "step_size": step_size, "rows": rows}


def kl_example():
    """Three actions, whose probabilities change: the divergence, reversed, and estimated."""
    old, new = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.6, 0.3, 0.1]])
    log_old, log_new = old.log(), new.log()
    # The estimate takes actions as the old policy draws them: 7, 2 and 1 of 10.
    logratio = (log_new - log_old)[0].repeat_interleave((10 * old[0]).round().long())
    values = {
        "kl": ppg_procgen.kl_divergence(log_old, log_new),
        "reversed": ppg_procgen.kl_divergence(log_new, log_old),
        "estimate": ppg_procgen.kl_estimate(logratio),
    }
    return {name: round(value.item(), 4) for name, value in values.items()}


def same_policy(betas=(0.0, 1.0, 10.0), target=3.0):
    """Gradient descent on L^joint in the smallest network: one feature f, one policy weight w.

    logits (w f, 0), V_aux = f. Where w f stays the same, so does the policy. For each beta_clone
    the path of (f, w), the divergence from the old policy at its end, and its maximum.
    """
    start, result = (1.0, 1.5), {"target": target}

    def policy(f, w):
        return torch.stack([w * f, torch.zeros_like(f)]).log_softmax(0)[None]

    for beta in betas:
        f, w = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in start)
        old, path, detour = policy(f, w).detach(), [], 0.0
        for step in range(401):
            KL = ppg_procgen.kl_divergence(old, policy(f, w))
            L_joint = ppg_procgen.value_loss(f[None], torch.tensor([target])) + beta * KL
            detour = max(detour, KL.item())
            if step % 5 == 0:
                path.append([round(f.item(), 3), round(w.item(), 3)])
            gradients = torch.autograd.grad(L_joint, (f, w), allow_unused=True)
            with torch.no_grad():
                for x, gradient in zip((f, w), gradients, strict=True):
                    x -= 0.05 * (gradient if gradient is not None else 0)
        result[str(beta)] = {"path": path, "kl": round(abs(KL.item()), 3)}
        result[str(beta)]["detour"] = round(detour, 2)
    return result


def equations():
    flow = {arch: gradient_flow(arch) for arch in ("dual", "shared", "detach")}
    words = {"clip_walk": clip_walk(), "kl": kl_example(), "same_policy": same_policy()}
    return {"clip": clip_cases(), "gae": gae_example(), "gradients": flow} | words


def games(folder):
    """Writes a picture of each game in hard mode, some steps after the start."""
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for game in ppg_procgen.GAMES:
        args = ppg_procgen.Args(env_id=game, num_envs=1, distribution_mode="hard", seed=3)
        envs = ppg_procgen.make_envs(args)
        for _ in range(12):
            envs.act(np.array([7]))
        picture = Image.fromarray(envs.observe()[1]["rgb"][0])
        picture.resize((128, 128), Image.NEAREST).save(folder / f"{game}.png", optimize=True)
        envs.close()


# The runs of broken.csv: a small game whose values can be seen, and gentle steps.
FLAGS = dict(num_envs=32, num_steps=16, num_minibatches=4, gamma=0.9, cuda=False)
FLAGS |= dict(
    arch="detach", n_pi=4, e_aux=3, aux_minibatch_rollouts=16, total_timesteps=14 * 32 * 16
)

# A fault is a change of flags, or lines of ppg_procgen.py and what stands there instead.
FAULTS = {
    "healthy": {},
    # Shown by name in curves.md.
    "learning rate ten times as large": {"learning_rate": 5e-3},
    "no KL term": {"beta_clone": 0.0},
    "entropy punished": {"-L_clip - args.ent_coef * S": "-L_clip + args.ent_coef * S"},
    "pictures not divided by 255": {"else torch.float32) / 255": "else torch.float32) / 1"},
    "value function not trained": {"vf_coef": 0.0, "vf_true_weight": 0.0},
    "entropy bonus too large": {"ent_coef": 0.5},
    "rewards a step late": {
        "            rewards[:, step] = torch.from_numpy(reward)": (
            "            rewards[:, (step + 1) % args.num_steps] = torch.from_numpy(reward)"
        )
    },
    # To be found in exercise 7.
    "ends of episodes ignored": {"not_done = 1 - next_done": "not_done = 1.0"},
    "old policy in the loop": {
        'kl_divergence(mb["old_logits"], logits)': "kl_divergence(logits.detach(), logits)"
    },
    "targets are the old values": {
        "return advantages, advantages + values": "return advantages, values.clone()"
    },
    "log-probability of another action": {
        "logits.gather(1, action).squeeze(1)\n": "logits.max(1).values\n"
    },
    "advantages with the wrong sign": {"(advantages - mean) / (var": "-(advantages - mean) / (var"},
    "gradients kept in the auxiliary phase": {"        optimizer.zero_grad()": "        pass"},
}


def faulty_script(fault):
    """ppg_procgen.py with a fault, as a module."""
    source = (ROOT / "ppg_procgen.py").read_text("utf-8")
    for right, wrong in fault.items():
        assert right in source, f"not in ppg_procgen.py: {right}"
        source = source.replace(right, wrong)
    module = types.ModuleType("faulty_ppg")
    module.__file__ = str(ROOT / "ppg_procgen.py")
    sys.modules[module.__name__] = module  # where dataclasses look for it
    exec(compile(source, "ppg_procgen.py with a fault", "exec"), module.__dict__)
    return module


def run(name, **changes):
    """All scalars of a run with a fault, and with other flags: {tag: [(step, value), ...]}."""
    fault = FAULTS[name]
    flags = {key: value for key, value in fault.items() if key.isidentifier()}
    module = faulty_script({key: value for key, value in fault.items() if key not in flags})
    module.make_envs = lambda args: TinyEnv(args.num_envs, args.seed, show_time=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        here = os.getcwd()
        stack.callback(os.chdir, here)
        os.chdir(folder)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            module.train(module.Args(**FLAGS | flags | changes))
        return scalars(Path(folder))


def broken(out):
    """Writes the runs with every fault."""
    with open(out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "tag", "step", "value"])
        for name in FAULTS:
            for tag, points in run(name).items():
                if tag.startswith("losses/") or tag == "charts/episodic_return":
                    writer.writerows([name, tag, step, f"{value:.5g}"] for step, value in points)
            print(name, flush=True)


def main(what):
    DATA.mkdir(exist_ok=True)
    if "equations" in what:
        (DATA / "equations.json").write_text(json.dumps(equations(), indent=1) + "\n")
    if "games" in what:
        games(DOCS / "static" / "games")
    if "broken" in what:
        broken(DATA / "broken.csv")


if __name__ == "__main__":
    main(sys.argv[1:] or ["equations", "games", "broken"])
