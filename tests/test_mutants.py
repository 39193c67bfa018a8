"""One-line faults in the scripts that the suite must notice: python -m pytest -m slow."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BOTH = ("ppo_procgen.py", "ppg_procgen.py")
PPG = ("ppg_procgen.py",)

MUTANTS = [  # name, scripts, line as it is, line with the fault
    ("gradients kept", ("ppo_procgen.py",), 'optimizers["policy"].zero_grad()', "pass"),
    ("gradients kept in the policy phase", PPG, "optimizers[optimizer].zero_grad()", "pass"),
    ("gradients kept in the auxiliary phase", PPG, "        optimizer.zero_grad()", "        pass"),
    ("value loss halved twice", BOTH, "return 0.5 * (values", "return 0.25 * (values"),
    ("reward discount is gamma", BOTH, "rewards[:, t] + 0.99 *", "rewards[:, t] + 0.999 *"),
    ("rewards centred", BOTH, "(rewards / math.sqrt", "((rewards - self.mean) / math.sqrt"),
    ("no episode end in the advantage", BOTH, "not_done = 1 - next_done", "not_done = 1.0"),
    ("no clipping", BOTH, "if clip_coef > 0:", "if clip_coef > 9:"),
    ("clipped the wrong way", BOTH, "torch.min(surrogate", "torch.max(surrogate"),
    ("entropy punished", BOTH, "-L_clip - args.ent_coef", "-L_clip + args.ent_coef"),
    ("observations not scaled", BOTH, "else torch.float32) / 255", "else torch.float32) / 1"),
    ("no relu before the dense layer", BOTH, "x = F.relu(x).flatten", "x = x.flatten"),
    ("heads too large", BOTH, "NUM_ACTIONS), 0.1)", "NUM_ACTIONS), 1.0)"),
    (
        "advantages not scaled",
        BOTH,
        "(advantages - mean) / (var",
        "(advantages - mean) / (1 + 0 * var",
    ),
    ("reward moments of the mean alone", BOTH, "square().mean())", "abs().mean())"),
    ("games unseeded", BOTH, "        rand_seed=worker_seed(args),\n", ""),
    (
        "learning rate jumps",
        BOTH,
        "(iteration - 1) / num_iterations",
        "(iteration % 2) / num_iterations",
    ),
    (
        "last partial rollout dropped",
        BOTH,
        "math.ceil(args.total_timesteps",
        "math.floor(args.total_timesteps",
    ),
    (
        "rows out of step",
        BOTH,
        "inds = torch.randperm(num_envs * num_steps)",
        "inds = torch.randint(num_envs * num_steps, (num_envs * num_steps,))",
    ),
    (
        "KL reversed",
        PPG,
        "(old_logits.softmax(-1) * (old_logits - logits))",
        "(logits.softmax(-1) * (logits - old_logits))",
    ),
    ("no stop-gradient", PPG, "x_value = x.detach()", "pass"),
    ("unused memory kept", BOTH, "libc.malloc_trim(0)", "pass"),
    (
        "policy epochs first",
        PPG,
        '[("value", ["value"])] * args.e_v + [("policy", ["policy"])] * args.e_pi',
        '[("policy", ["policy"])] * args.e_pi + [("value", ["value"])] * args.e_v',
    ),
    ("beta_clone ignored", PPG, "args.beta_clone * KL", "KL"),
    (
        "phase too early",
        PPG,
        "aux_buffer.phases < (iteration - 1) // args.n_pi",
        "aux_buffer.phases < iteration // args.n_pi",
    ),
    (
        "micro-batches not weighted in PPO",
        ("ppo_procgen.py",),
        "(share * loss).backward()",
        "loss.backward()",
    ),
    ("last micro-batch only", BOTH, "yield mb, len(inds) / len(mb_inds)", "yield mb, 1.0"),
    (
        "old logits of the new policy",
        PPG,
        'KL = kl_divergence(mb["old_logits"],',
        "KL = kl_divergence(logits.detach(),",
    ),
    (
        "returns of the wrong rollout",
        PPG,
        "self.obs[rows], self.returns[rows] = obs, returns",
        "self.obs[: self.num_envs], self.returns[rows] = obs, returns",
    ),
    ("worker gradients summed", BOTH, "        x /= NUM_WORKERS\n", ""),
    ("one seed for all workers", BOTH, "(args.seed + 10_000 * RANK)", "(args.seed + 0 * RANK)"),
    ("time left without phases", PPG, "work += num_phases", "work += 0 * num_phases"),
    ("true value untrained", PPG, "args.vf_true_weight * L_value", "0 * L_value"),
]

MUTANTS_OF_RESUMPTION = [
    (
        "random numbers not resumed",
        BOTH,
        '{"games": Games(envs), "random": Random()}',
        '{"games": Games(envs)}',
    ),
    (
        "games not resumed",
        BOTH,
        '{"games": Games(envs), "random": Random()}',
        '{"random": Random()}',
    ),
    (
        "rewards not resumed",
        BOTH,
        '"reward_normalizer": reward_normalizer, "episodes"',
        '"episodes"',
    ),
    (
        "optimizers not resumed",
        BOTH,
        'parts |= {f"{name} optimizer"',
        'parts |= {} and {f"{name} optimizer"',
    ),
    (
        "log repeats itself",
        BOTH,
        'last["logged_step"] + 1 if last',
        'last["logged_step"] + 10**9 if last',
    ),
    (
        "checkpoint overwritten in place",
        BOTH,
        '    new = path.with_name(path.name + ".new")\n',
        "    new = path\n",
    ),
    ("pickles executed", BOTH, "weights_only=True", "weights_only=False"),
    (
        "tests draw from the training's numbers",
        BOTH,
        "sample(agent(obs)[0], self.generator)",
        "sample(agent(obs)[0])",
    ),
]


NAMES = "golden", "equations", "flags", "training", "cli", "workers"  # the quickest first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "scripts", "line", "fault"),
    [(NAMES, *mutant[1:]) for mutant in MUTANTS]
    + [(("resume",), *mutant[1:]) for mutant in MUTANTS_OF_RESUMPTION],
    ids=[mutant[0] for mutant in MUTANTS + MUTANTS_OF_RESUMPTION],
)
def test_suite_kills(names, scripts, line, fault, tmp_path):
    for file in ("ppo_procgen.py", "ppg_procgen.py", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / file, tmp_path)
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    for script in scripts:
        source = (tmp_path / script).read_text()
        assert source.count(line) == 1, f"{script}: the mutated line has changed"
        (tmp_path / script).write_text(source.replace(line, fault))
    tests = [f"tests/test_{part}.py" for part in names]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1, result.stdout[-2000:]
