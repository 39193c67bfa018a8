"""The inputs of the golden numbers, rebuilt from their recipe.

published_code_outputs.json holds what the authors' implementation (openai/phasic-policy-gradient
at commit 7295473, PyTorch, CPU, float32) computes from them.
"""

import json
from pathlib import Path

import numpy as np
import torch

GOLDEN = json.loads((Path(__file__).parent / "golden" / "published_code_outputs.json").read_text())
RESIDUAL_NORM = (1 / np.sqrt(3) / np.sqrt(2)) ** 0.5


def params(arch, seed):
    """Name -> float32 tensor: each from a generator of its own, its rows scaled to a fixed norm."""
    out = {}
    for i, (name, shape) in enumerate(GOLDEN["params"][arch]):
        w = np.random.RandomState(seed * 1000 + i).standard_normal(shape)
        if name.endswith("bias"):
            w = w * 0.01
        else:
            kind = name.split(".")[-2]
            norm = {"conv": 1.0, "dense": 1.4}.get(kind, 0.5 if "head" in kind else RESIDUAL_NORM)
            rows = w.reshape(shape[0], -1)
            w = (rows * norm / np.linalg.norm(rows, axis=1, keepdims=True)).reshape(shape)
        out[name] = torch.tensor(w, dtype=torch.float32)
    return out


def segment(seed, nenv, nstep):
    """One rollout: obs, actions, logprobs, returns (value targets), advantages; (nenv, nstep)."""
    r = np.random.RandomState(seed)
    obs = r.randint(0, 256, (nenv, nstep, 64, 64, 3)).astype(np.uint8)
    actions = r.randint(0, 15, (nenv, nstep))
    r.rand(nenv, nstep)  # first: the networks have no memory
    logprobs = -np.log(15) + 0.3 * r.standard_normal((nenv, nstep))
    returns = r.standard_normal((nenv, nstep))
    advantages = r.standard_normal((nenv, nstep))
    real = {"logprobs": logprobs, "returns": returns, "advantages": advantages}
    out = {name: torch.tensor(x, dtype=torch.float32) for name, x in real.items()}
    return {"obs": torch.tensor(obs), "actions": torch.tensor(actions), **out}


def load(module, arch, seed):
    """The script's Agent with the golden parameters; PPO's is the published `shared` one."""
    weights = params(arch, seed)
    if module.__name__ == "ppo_procgen":
        assert arch == "shared"
        agent = module.Agent()
        weights = {
            name.replace("policy_encoder", "encoder"): w
            for name, w in weights.items()
            if not name.startswith("aux_value_head")
        }
    else:
        agent = module.Agent(arch)
    agent.load_state_dict(weights)
    return agent.to(memory_format=torch.channels_last)


def published_name(name):
    """The published name of one of our parameters."""
    return f"policy_{name}" if name.startswith("encoder") else name
