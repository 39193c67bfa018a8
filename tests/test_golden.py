"""Both scripts compute what the published code computes: golden numbers, update for update."""

import pytest
import torch

import ppg_procgen
import ppo_procgen
from golden_recipe import GOLDEN, load, params, published_name, segment

# The golden numbers were rounded with AVX-512. Adam's first steps amplify what other instructions
# round otherwise, where a gradient is almost zero: there the tests can compare less closely.
SAME_ROUNDING = torch.backends.cpu.get_cpu_capability() == "AVX512"
BOTH = pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])


def cases(key):
    """Every (script, case) that the script can run: PPO is the published `shared` architecture."""
    for i, case in enumerate(GOLDEN[key]):
        yield pytest.param(ppg_procgen, case, id=f"ppg-{case['arch']}-{i}")
        equal_epochs = case.get("e_pi") == case.get("e_vf")
        if case["arch"] == "shared" and equal_epochs and not case.get("kl_penalty"):
            yield pytest.param(ppo_procgen, case, id=f"ppo-{i}")


def close(actual, expected, rtol=1e-5, atol=1e-6):
    actual = torch.as_tensor(actual, dtype=torch.float64)
    torch.testing.assert_close(
        actual, torch.tensor(expected, dtype=torch.float64), rtol=rtol, atol=atol
    )


def check_changes(agent, start, expected, rtol, other_rtol):
    """Norm of each parameter, and sum and norm of its change since `start`.

    `rtol` is the relative tolerance of the changes; `other_rtol`, where rounding differs.
    """
    rtol = rtol if SAME_ROUNDING else other_rtol
    for name, weight in agent.named_parameters():
        want = expected[published_name(name)]
        change = (weight.detach() - start[published_name(name)]).double()
        close(weight.detach().double().norm(), want["norm"], rtol=0.1 * rtol)
        close(change.norm(), want["change_norm"], rtol=rtol, atol=1e-7)
        if SAME_ROUNDING:  # a sum cancels, so its error is relative to the change's size
            scale = want["change_norm"] * change.numel() ** 0.5
            close(change.sum(), want["change_sum"], rtol=rtol, atol=1e-4 * scale + 1e-7)


def args_of(module, case, **changes):
    flags = dict(
        num_minibatches=case.get("nminibatch", 1),
        minibatch_by="trajectories",
        clip_coef=case.get("clip_param", 0.2),
        learning_rate=case.get("lr", 5e-4),
    )
    if module is ppg_procgen:
        flags |= dict(kl_penalty=case.get("kl_penalty", 0.0), arch=case["arch"])
    return module.Args(**flags, **changes)


def adams(agent, lr):
    return {
        name: torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-8)
        for name in ("policy", "value", "aux")
    }


@BOTH
def test_initial_weights(module):
    agent = module.Agent()
    for name, weight in agent.named_parameters():
        want = GOLDEN["init"].get(published_name(name))
        if want is None:  # `init` lists the dual architecture
            want = GOLDEN["init"][published_name(name).replace("value_encoder", "policy_encoder")]
        assert list(weight.shape) == want["shape"]
        if "row_norm_min" in want:
            norms = weight.detach().flatten(1).norm(dim=1)
            close(norms.min(), want["row_norm_min"])
            close(norms.max(), want["row_norm_max"])
        else:
            assert weight.abs().max() == 0


def test_parameter_counts():
    def count(agent):
        return sum(weight.numel() for weight in agent.parameters())

    assert count(ppo_procgen.Agent()) == 626_256
    assert count(ppg_procgen.Agent("detach")) == 626_513
    assert count(ppg_procgen.Agent("shared")) == 626_513
    assert count(ppg_procgen.Agent("dual")) == 1_248_657


@BOTH
@pytest.mark.parametrize("case", GOLDEN["gae"], ids=lambda case: f"{case['nenv']}x{case['nstep']}")
def test_gae(module, case):
    values = torch.tensor(case["value"])
    dones = torch.tensor(case["first"], dtype=torch.float32)
    advantages, returns = module.gae(
        torch.tensor(case["reward"]),
        values[:, :-1],
        dones[:, :-1],
        values[:, -1],
        dones[:, -1],
        case["gamma"],
        case["lam"],
    )
    close(advantages, case["advantage"])
    close(returns, case["value_target"])


@BOTH
@pytest.mark.parametrize("case", GOLDEN["reward_normaliser"])
def test_reward_normalizer(module, case):
    rewards = torch.tensor(case["segments"][0]["reward"])
    normalizer = module.RewardNormalizer(len(rewards))
    for part in case["segments"]:
        rewards = torch.tensor(part["reward"])
        dones = torch.tensor(part["first"], dtype=torch.float32)
        close(normalizer(rewards, dones), part["normalised"])
        close(normalizer.var, part["variance"])


@pytest.mark.parametrize(("module", "case"), list(cases("forward")))
def test_forward(module, case):
    agent = load(module, case["arch"], case["param_seed"])
    obs = segment(case["segment_seed"], case["nenv"], case["nstep"])["obs"].flatten(0, 1)
    with torch.no_grad():
        logits, values = agent(obs)
    close(logits.flatten(), torch.tensor(case["logits"]).flatten().tolist())
    close(values.flatten(), torch.tensor(case["value"]).flatten().tolist())
    if module is ppg_procgen:
        with torch.no_grad():
            logits2, values2, aux_values = agent.with_aux_value(obs)
        assert torch.equal(logits, logits2) and torch.equal(values, values2)
        close(aux_values.flatten(), torch.tensor(case["aux_value"]).flatten().tolist())


@pytest.mark.parametrize(("module", "case"), list(cases("loss")))
def test_losses_and_gradients(module, case, monkeypatch):
    agent = load(module, case["arch"], case["param_seed"])
    batch = segment(case["segment_seed"], case["nenv"], case["nstep"])
    args = args_of(module, case)
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: None)  # keep the gradients
    metrics = module.policy_phase(agent, adams(agent, 0.0), batch, args)
    last = {name: x.item() for name, x in metrics[0].items()}
    close(last["policy_loss"], case["diags"]["pg"])
    close(last["value_loss"], case["loss_vf"])
    close(last["entropy"], case["diags"]["entropy"])
    close(last["clipfrac"], case["diags"]["clipfrac"])
    for name, weight in agent.named_parameters():
        want = case["grad_norm"][published_name(name)]
        assert (weight.grad is None) == (want is None), name
        if want is not None:
            close(weight.grad.norm(), want, rtol=1e-4)


@pytest.mark.parametrize(("module", "case"), list(cases("policy_phase")))
def test_policy_phase(module, case, monkeypatch):
    monkeypatch.setattr(torch, "randperm", torch.arange)  # the published run was not shuffled
    agent = load(module, case["arch"], case["param_seed"])
    batch = segment(case["segment_seed"], case["nenv"], case["nstep"])
    if module is ppg_procgen:
        args = args_of(module, case, e_pi=case["e_pi"], e_v=case["e_vf"])
    else:
        args = args_of(module, case, update_epochs=case["e_pi"])
    metrics = module.policy_phase(agent, adams(agent, case["lr"]), batch, args)
    last = module.means(metrics[-case["nminibatch"] :], "")
    close(last["policy_loss"], case["last_epoch"]["pg"], rtol=1e-4)
    close(last["value_loss"], case["last_epoch"]["loss_vf"], rtol=1e-4)
    close(last["entropy"], case["last_epoch"]["entropy"], rtol=1e-4)
    close(last["clipfrac"], case["last_epoch"]["clipfrac"])
    start = params(case["arch"], case["param_seed"])
    check_changes(agent, start, case["params_after"], 1e-3, 0.01)


@pytest.mark.parametrize("case", GOLDEN["auxiliary_phase"], ids=lambda case: case["arch"])
def test_auxiliary_phase(case, monkeypatch):
    agent = load(ppg_procgen, case["arch"], case["param_seed"])
    parts = [segment(seed, case["nenv"], case["nstep"]) for seed in case["segment_seeds"]]
    buffer = {
        name: torch.stack([part[name] for part in parts]).flatten(0, 1)
        for name in ("obs", "returns")
    }
    # The published order runs over segments within an environment; our rows are segment by segment.
    order = torch.arange(len(buffer["obs"])).reshape(len(parts), case["nenv"]).T.flatten()
    monkeypatch.setattr(torch, "randperm", lambda n: order)
    args = ppg_procgen.Args(
        beta_clone=case["beta_clone"],
        vf_true_weight=case["vf_true_weight"],
        aux_minibatch_rollouts=case["aux_minibatch_trajectories"],
    )
    buffer["old_logits"] = ppg_procgen.old_policy_logits(agent, buffer, args)
    optimizer = torch.optim.Adam(agent.parameters(), lr=case["lr"], eps=1e-8)
    losses = []
    for _ in range(case["n_aux_epochs"]):
        losses += ppg_procgen.auxiliary_epoch(agent, optimizer, buffer, args)
    assert len(losses) == len(case["minibatch_losses"])
    # In the first minibatch pi is pi_old: the policy head's gradient is rounding noise, of which
    # Adam's first step makes steps of +-lr.
    first, want = losses[0], case["minibatch_losses"][0]
    close(first["kl_loss"], 0.0, atol=1e-7)
    close(first["aux_value_loss"], want["vf_aux"])
    close(first["real_value_loss"], want["vf_true"])
    for ours, want in zip(losses, case["minibatch_losses"], strict=True):
        close(ours["kl_loss"], want["pol_distance"], rtol=1e-5 if SAME_ROUNDING else 0.1)
        close(ours["aux_value_loss"], want["vf_aux"], rtol=1e-5 if SAME_ROUNDING else 5e-3)
        close(ours["real_value_loss"], want["vf_true"], rtol=1e-5 if SAME_ROUNDING else 5e-3)
    start = params(case["arch"], case["param_seed"])
    check_changes(agent, start, case["params_after"], 5e-3, 0.15)
