"""The equations against brute force, and what must hold between the phases."""

import math
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ppg_procgen
import ppo_procgen
from golden_recipe import segment

BOTH = pytest.mark.parametrize("module", [ppo_procgen, ppg_procgen], ids=["ppo", "ppg"])


def brute_force_advantage(rewards, values, dones, gamma, gae_lambda):
    """A_t = sum_k (gamma lambda)^k delta_{t+k}, up to the episode's end, in float64."""
    steps = len(rewards)
    deltas = [
        rewards[t] + (0 if dones[t + 1] else gamma * values[t + 1]) - values[t]
        for t in range(steps)
    ]
    advantages = []
    for t in range(steps):
        total = 0.0
        for k in range(t, steps):
            total += (gamma * gae_lambda) ** (k - t) * deltas[k]
            if dones[k + 1]:
                break
        advantages.append(total)
    return np.array(advantages)


@BOTH
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 9), gamma=st.sampled_from([0.0, 0.9, 1.0]))
def test_gae_is_the_sum_of_the_paper(module, seed, steps, gamma):
    r = np.random.RandomState(seed)
    rewards, values = r.standard_normal((3, steps)), r.standard_normal((3, steps + 1))
    dones = r.rand(3, steps + 1) < 0.3
    dones[0, [0, -1]] = dones[1, steps // 2] = True
    t = {"rewards": rewards, "values": values, "dones": dones}
    t = {name: torch.tensor(x, dtype=torch.float64) for name, x in t.items()}
    v, d = t["values"], t["dones"]
    ours, returns = module.gae(
        t["rewards"], v[:, :-1], d[:, :-1], v[:, -1], d[:, -1], gamma, gae_lambda=0.95
    )
    for n in range(3):
        want = brute_force_advantage(rewards[n], values[n], dones[n], gamma, 0.95)
        np.testing.assert_allclose(ours[n].numpy(), want, atol=1e-12)
    torch.testing.assert_close(returns, ours + v[:, :-1])


@BOTH
def test_reward_normalizer_is_the_running_deviation_of_all_returns(module):
    r = np.random.RandomState(0)
    normalizer = module.RewardNormalizer(4)
    carried, every_return = np.zeros(4), []
    for _ in range(5):
        rewards, dones = 3 * r.rand(4, 7), r.rand(4, 7) < 0.2
        for t in range(7):
            carried = rewards[:, t] + 0.99 * np.where(dones[:, t], 0, carried)
            every_return.append(carried)
        ours = normalizer(torch.tensor(rewards), torch.tensor(dones, dtype=torch.float64))
        want = np.clip(rewards / np.std(every_return), -10, 10)
        np.testing.assert_allclose(ours.numpy(), want, rtol=1e-3)


@BOTH
@pytest.mark.parametrize("clip_coef", [0.2, 0.0])
def test_clipped_surrogate_value_and_gradient(module, clip_coef):
    ratio = torch.tensor([0.5, 0.9, 1.1, 1.5, 0.5, 1.5], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    objective = module.clipped_surrogate(ratio, advantages, clip_coef)
    objective.backward()
    if clip_coef:
        terms, slopes = [0.5, 0.9, 1.1, 1.2, -0.8, -1.5], [1, 1, 1, 0, 0, -1]
    else:
        terms, slopes = [0.5, 0.9, 1.1, 1.5, -0.5, -1.5], [1, 1, 1, 1, -1, -1]
    assert objective.item() == pytest.approx(sum(terms) / 6)
    np.testing.assert_allclose(ratio.grad * 6, slopes)


@BOTH
def test_entropy_value_loss_and_explained_variance(module):
    logits = torch.tensor([[0.25] * 4, [0.5, 0.5, 1e-30, 1e-30]]).log()
    assert module.entropy(logits).item() == pytest.approx((math.log(4) + math.log(2)) / 2)
    values, returns = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])
    assert module.value_loss(values, returns).item() == pytest.approx(0.5 * (1 + 4) / 2)
    assert module.explained_variance(values, returns) == pytest.approx(1 - 0.25 / 1)
    assert module.explained_variance(values, torch.ones(2)) == 0
    assert module.explained_variance(torch.randn(64, 256), torch.full((64, 256), 0.1)) == 0


def test_kl_divergence_direction():
    old, new = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.5, 0.5]])
    want = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert ppg_procgen.kl_divergence(old.log(), new.log()).item() == pytest.approx(want)
    log_ratio = torch.tensor([1.0, -3.0])
    assert ppg_procgen.kl_estimate(log_ratio).item() == pytest.approx(2.5)


@BOTH
def test_advantages_get_mean_0_and_biased_deviation_1(module):
    advantages = 3 * np.random.RandomState(0).standard_normal((4, 6)) + 2
    want = (advantages - advantages.mean()) / (np.std(advantages) + 1e-8)
    np.testing.assert_allclose(module.normalize(torch.tensor(advantages)), want, rtol=1e-12)


@BOTH
def test_constant_advantages_and_zero_rewards_stay_finite(module):
    assert (module.normalize(torch.full((4, 3), 7.0)).abs() < 100).all()
    rewards = module.RewardNormalizer(2)(torch.zeros(2, 3), torch.zeros(2, 3))
    assert (rewards == 0).all()


@BOTH
@pytest.mark.parametrize("by", ["steps", "trajectories"])
def test_minibatches_hold_each_step_once(module, by):
    inds = module.minibatches(8, 5, 4, by)
    assert inds.shape == (4, 10)
    assert sorted(inds.flatten().tolist()) == list(range(40))
    assert not torch.equal(inds, module.minibatches(8, 5, 4, by))
    environments = [len(set((row // 5).tolist())) for row in inds]
    assert (max(environments) == 2) == (by == "trajectories")


@BOTH
def test_first_ratio_is_one(module):
    torch.manual_seed(0)
    agent = module.Agent()
    batch = segment(1, 4, 4)
    with torch.no_grad():
        logits, _ = agent(batch["obs"].flatten(0, 1))
    actions = batch["actions"].reshape(-1, 1)
    batch["logprobs"] = logits.gather(1, actions).reshape(4, 4)
    optimizers = {"policy": torch.optim.Adam(agent.parameters(), lr=5e-4)}
    metrics = module.policy_phase(agent, optimizers, batch, module.Args(num_minibatches=2))
    assert abs(metrics[0]["old_approx_kl"].item()) < 1e-5
    assert metrics[0]["clipfrac"].item() == 0
    assert (
        abs(metrics[-1]["old_approx_kl"].item()) > 1e-5
    )  # the second minibatch meets a new policy


def aux_buffer(agent, args):
    part = segment(2, 4, 3)
    buffer = {"obs": part["obs"], "returns": part["returns"]}
    buffer["old_logits"] = ppg_procgen.old_policy_logits(agent, buffer, args)
    return buffer


@pytest.mark.parametrize("arch", ["dual", "shared", "detach"])
def test_no_gradient_leaks_into_the_auxiliary_phase(arch):
    """The first auxiliary step is the same whatever gradients were left before it."""
    args = ppg_procgen.Args(arch=arch, aux_minibatch_rollouts=4)
    weights = []
    for leftover in (None, 1e3):
        torch.manual_seed(0)
        agent = ppg_procgen.Agent(arch)
        buffer = aux_buffer(agent, args)
        for weight in agent.parameters():
            weight.grad = None if leftover is None else torch.full_like(weight, leftover)
        optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
        metrics = ppg_procgen.auxiliary_epoch(agent, optimizer, buffer, args)
        assert metrics[0]["kl_loss"].abs() < 1e-6  # case 22
        weights.append(torch.cat([weight.flatten() for weight in agent.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("arch", ["dual", "shared", "detach"])
def test_gradient_flow(arch):
    """Which loss trains which part, per architecture."""
    torch.manual_seed(0)
    agent = ppg_procgen.Agent(arch)
    obs = segment(3, 2, 2)["obs"].flatten(0, 1)

    def trained(loss):
        agent.zero_grad()
        loss.backward()
        parts = {"policy_encoder", "value_encoder", "policy_head", "value_head", "aux_value_head"}
        grads = {part: 0.0 for part in parts}
        for name, weight in agent.named_parameters():
            if weight.grad is not None:
                grads[name.split(".")[0]] += weight.grad.abs().sum().item()
        return {part for part, size in grads.items() if size > 0}

    by_value = {
        "dual": {"value_encoder", "value_head"},
        "shared": {"policy_encoder", "value_head"},
        "detach": {"value_head"},
    }[arch]
    logits, values = agent(obs)
    assert trained(logits[:, 0].mean()) == {"policy_encoder", "policy_head"}
    assert trained(agent(obs)[1].mean()) == by_value
    assert trained(agent.with_aux_value(obs)[1].mean()) == by_value
    assert trained(agent.with_aux_value(obs)[2].mean()) == {"policy_encoder", "aux_value_head"}
    assert values.shape == (4,)


@BOTH
def test_log_names_the_quantity_that_is_not_finite_and_the_step(module):
    agent = module.Agent()
    module.log(Mock(), {"losses/value_loss": 1.0}, agent, 1024)
    with pytest.raises(FloatingPointError, match=r"losses/value_loss.*1,024"):
        module.log(Mock(), {"losses/value_loss": math.nan}, agent, 1024)
    with torch.no_grad():
        agent.policy_head.bias[3] = math.inf
    with pytest.raises(FloatingPointError, match=r"policy_head.bias.*2,048"):
        module.log(Mock(), {}, agent, 2048)


def gradients(agent):
    """The gradient of each parameter that has one."""
    return {name: w.grad.clone() for name, w in agent.named_parameters() if w.grad is not None}


def assert_same_step(before, after):
    """Gradients and metrics of a step agree but for rounding: (gradients, metrics) twice."""
    assert before[0].keys() == after[0].keys() and len(before[1]) == len(after[1]) == 1
    for name, gradient in before[0].items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(after[0][name], gradient, rtol=0, atol=1e-4 * scale)
    for name, value in before[1][0].items():
        torch.testing.assert_close(after[1][0][name], value, rtol=1e-5, atol=1e-6)


@BOTH
@pytest.mark.parametrize("size", [1, 5, 12])
def test_micro_batches_add_up_to_the_minibatch_in_the_policy_phase(module, size):
    """Case 27, with a size that does not divide the 12 states among them."""
    results = []
    for micro_batch_size in (100, size):
        torch.manual_seed(0)
        agent = module.Agent()
        sgd = torch.optim.SGD(agent.parameters(), lr=0.1)
        args = module.Args(num_minibatches=1, micro_batch_size=micro_batch_size)
        epochs = dict(update_epochs=1) if module is ppo_procgen else dict(kl_penalty=1.0)
        args = replace(args, **epochs)
        metrics = module.policy_phase(agent, {"policy": sgd}, segment(4, 4, 3), args)
        results.append((gradients(agent), metrics))
    assert_same_step(*results)


@pytest.mark.parametrize("size", [1, 5, 12])
def test_micro_batches_add_up_to_the_minibatch_in_the_auxiliary_phase(size):
    """Case 27."""
    results = []
    for micro_batch_size in (100, size):
        torch.manual_seed(0)
        agent = ppg_procgen.Agent()
        sgd = torch.optim.SGD(agent.parameters(), lr=0.1)
        args = ppg_procgen.Args(micro_batch_size=micro_batch_size)
        buffer = aux_buffer(agent, args)
        with torch.no_grad():  # leave pi_old, so that the KL has a gradient
            agent.policy_head.weight.mul_(3)
        metrics = ppg_procgen.auxiliary_epoch(agent, sgd, buffer, args)
        results.append((gradients(agent), metrics))
    assert results[0][1][0]["kl_loss"] > 1e-4
    assert_same_step(*results)


@BOTH
def test_micro_batches_are_small_on_a_cpu(module):
    """64 or 128 states at a time by default, all of the minibatch exactly once."""
    inds, cpu = torch.randperm(300), torch.device("cpu")
    for args, sizes in (
        (module.Args(), [64] * 4 + [44]),
        (module.Args(bf16=True), [128, 128, 44]),
        (module.Args(micro_batch_size=200), [200, 100]),
    ):
        parts = list(module.micro_batches({"x": torch.arange(300)}, inds, args, cpu))
        assert [len(mb["x"]) for mb, _ in parts] == sizes
        assert torch.equal(torch.cat([mb["x"] for mb, _ in parts]), inds)
        assert sum(share for _, share in parts) == pytest.approx(1)


@BOTH
def test_bf16_encoder_rounds_and_the_rest_does_not(module):
    """bfloat16 has 8 bits: features within 2 %, everything after them in float32."""
    torch.manual_seed(0)
    exact, rounded = module.Encoder(), module.Encoder(bf16=True)
    rounded.load_state_dict(exact.state_dict())
    obs = segment(5, 4, 4)["obs"].flatten(0, 1)
    want, features = exact(obs), rounded(obs)
    assert features.dtype == torch.float32 and not torch.equal(want, features)
    assert (features - want).norm() < 0.02 * want.norm()
    agent = module.Agent(bf16=True)
    assert all(output.dtype == torch.float32 for output in agent(obs))
    agent(obs)[1].sum().backward()
    assert all(gradient.dtype == torch.float32 for gradient in gradients(agent).values())
