"""Exercise 5: PPG from PPO. 60 minutes.

`ppo_procgen.py` is given, and a network with a third head. Write what is missing: the auxiliary
phase, and the loop that decides when it runs. Then:
python -m pytest docs/exercises/ex05_ppg_from_ppo.py

R trajectories of T steps are stored. Networks take states without the two dimensions (R, T), that
is (B, ...): agent(obs) returns logits (B, A), which are log-probabilities, and values (B,);
agent.with_aux_value(obs) returns logits, values and aux_values (B,).
"""

from unittest.mock import patch

import torch
from torch import nn

import ppg_procgen
from golden_recipe import GOLDEN, load, segment


def auxiliary_phase(agent, optimizer, buffer, args):
    """args.e_aux epochs on L^joint + args.vf_true_weight * L^value, with args.beta_clone.

    buffer: obs (R, T, ...), returns (R, T). A minibatch has args.aux_minibatch_rollouts whole
    trajectories, the last one maybe fewer; torch.randperm(R) shuffles them for each epoch. Returns
    a list with a dictionary for each gradient step, which holds the losses of the minibatch before
    the step, without their weights: kl_loss, aux_value_loss, real_value_loss.
    """
    raise NotImplementedError


def train(agent, num_iterations, ppo_iteration, auxiliary_phase, args):
    """The loop: iterations 1 ... num_iterations of PPO, and the auxiliary phases between them.

    ppo_iteration(iteration) does a rollout and a policy phase with its own optimizer, and returns
    the obs (N, T, ...) and returns (N, T) of the rollout, in tensors that the next one overwrites.
    Call auxiliary_phase(agent, optimizer, buffer, args) after every args.n_pi iterations if more
    follow, on all their rollouts. The optimizer is Adam with args.aux_learning_rate.
    """
    raise NotImplementedError


# ------------------------------------------------------------------------------------- the checks


class TinyAgent(ppg_procgen.Agent):
    """PPG's Agent, but for pictures of 3 numbers, 3 actions and fixed weights; notes its use."""

    def __init__(self):
        nn.Module.__init__(self)
        self.arch, self.calls = "dual", []
        self.policy_encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.value_encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.policy_head, self.value_head = nn.Linear(4, 3), nn.Linear(4, 1)
        self.aux_value_head = nn.Linear(4, 1)
        for i, weight in enumerate(self.double().parameters()):
            numbers = torch.arange(weight.numel(), dtype=torch.float64) + 10 * i
            weight.data = numbers.sin().reshape(weight.shape)

    def with_aux_value(self, obs):
        outputs = super().with_aux_value(obs)
        call = {"obs": obs, "trained": False}
        self.calls.append(call)
        for output in outputs:
            if output.requires_grad:
                output.register_hook(lambda grad: call.update(trained=True))
        return outputs


class Recorder(torch.optim.SGD):
    """Gradient descent that notes, for each step, the rows it was for and the biases' gradients."""

    def __init__(self, agent, buffer):
        super().__init__(agent.parameters(), lr=1.0)
        self.agent, self.obs, self.steps = agent, buffer["obs"].flatten(0, 1), []

    def step(self):
        trained = [call["obs"] for call in self.agent.calls if call["trained"]]
        rows = {round(float(x)) for obs in trained for x in obs[:, 0] * len(self.obs)}
        with torch.no_grad():
            logits, values, aux_values = self.agent.with_aux_value(self.obs)
        step = {"rows": rows, "logits": logits, "values": values, "aux_values": aux_values}
        for name in "policy_head", "value_head", "aux_value_head":
            grad = getattr(self.agent, name).bias.grad
            step[name] = torch.zeros(1) if grad is None else grad.clone()
        self.steps.append(step)
        self.agent.calls.clear()
        super().step()


def tiny_buffer(num_trajectories, num_steps):
    """States whose first number times R * T is their row's number."""
    rows = torch.arange(num_trajectories * num_steps, dtype=torch.float64)
    obs = torch.stack([rows / len(rows), (3 * rows).sin(), (7 * rows).cos()], -1)
    shape = (num_trajectories, num_steps)
    return {"obs": obs.unflatten(0, shape), "returns": (5 * rows).sin().reshape(shape)}


def steps_of_a_phase(num_trajectories, left_behind=None, **flags):
    """What the Recorder notes; `left_behind` fills the gradients before the phase."""
    agent, buffer = TinyAgent(), tiny_buffer(num_trajectories, 3)
    if left_behind:
        for weight in agent.parameters():
            weight.grad = torch.full_like(weight, left_behind)
    optimizer = Recorder(agent, buffer)
    try:
        auxiliary_phase(agent, optimizer, buffer, ppg_procgen.Args(**flags))
    except RuntimeError as error:
        hint = "the old logits are data, no path for a gradient: torch.no_grad()"
        assert "second time" not in str(error), hint
        raise
    assert optimizer.steps, "optimizer.step() was never called"
    return optimizer.steps


def equal(ours, wanted):
    return torch.allclose(ours, wanted.to(ours), rtol=1e-6, atol=1e-9)


def test_minibatches():
    steps = steps_of_a_phase(9, e_aux=3, aux_minibatch_rollouts=2)
    assert len(steps) == 15, "9 trajectories in minibatches of 2: 5 steps in each of 3 epochs"
    for step in steps:
        whole = all(row // 3 * 3 + t in step["rows"] for row in step["rows"] for t in range(3))
        assert whole, "a minibatch has WHOLE trajectories: shuffle their numbers, not the steps"
    epochs = [[step["rows"] for step in steps[i : i + 5]] for i in (0, 5, 10)]
    for epoch in epochs:
        assert set.union(*epoch) == set(range(27)), "an epoch visits every trajectory once"
    assert epochs[0] != epochs[1], "shuffle anew for each epoch"


def test_value_losses():
    """The gradient of a head's bias is the mean error of what the head says."""
    returns = tiny_buffer(4, 3)["returns"].flatten()
    flags = dict(e_aux=1, aux_minibatch_rollouts=4, vf_true_weight=0.25)
    (step,) = steps_of_a_phase(4, **flags)
    for what, head, weight in ("L^aux", "aux_value", 1.0), ("L^value", "value", 0.25):
        ours, wanted = step[f"{head}_head"], weight * (step[f"{head}s"] - returns).mean()
        assert not equal(ours, 0 * wanted), f"{what} is missing: {head}_head has no gradient"
        assert not equal(ours, 2 * wanted), f"{what} has a factor 1/2"
        assert not equal(ours, 12 * wanted), f"{what} is a mean over the minibatch, not a sum"
        assert not equal(weight * ours, wanted) or weight == 1, "vf_true_weight weighs L^value"
        assert equal(ours, wanted), f"{what} is 1/2 the mean square of {head}s - returns"


def test_gradients_are_the_minibatches_own():
    flags = dict(e_aux=2, aux_minibatch_rollouts=4)
    returns = tiny_buffer(4, 3)["returns"].flatten()
    first, second = steps_of_a_phase(4, left_behind=0.5, **flags)
    errors = [(step["aux_values"] - returns).mean() for step in (first, second)]
    leftover = "the policy phase leaves gradients behind: zero_grad() BEFORE the first backward()"
    assert not equal(first["aux_value_head"], errors[0] + 0.5), leftover
    hint = "the gradients of two minibatches add up: zero_grad() for each"
    assert not equal(second["aux_value_head"], errors[0] + errors[1]), hint
    assert equal(second["aux_value_head"], errors[1]), "backward() once for each minibatch"


def test_kl():
    """KL[pi_old, pi] has the gradient E[pi - pi_old] for the bias of the policy's head."""
    steps = steps_of_a_phase(4, e_aux=3, aux_minibatch_rollouts=2, beta_clone=0.5)
    none = [equal(step["policy_head"], torch.zeros(1)) for step in steps]
    hint = "pi_old is computed ONCE, before the first epoch: what is computed anew pulls nowhere"
    assert none != [True, False] * 3, hint
    assert not all(none), f"the KL is missing; or {hint}"
    assert none[0], "pi IS pi_old before the first step"
    for step in steps[1:]:
        ours, rows = step["policy_head"], sorted(step["rows"])
        old, logits = steps[0]["logits"][rows], step["logits"][rows]
        pi, logratio = logits.exp(), logits - old
        wanted = 0.5 * (pi - old.exp()).mean(0)
        turned = 0.5 * (pi * (logratio - (pi * logratio).sum(-1, keepdim=True))).mean(0)
        assert not equal(ours, turned), "that is KL[pi, pi_old]: weigh by the OLD probabilities"
        assert not equal(ours, 2 * wanted), "beta_clone weighs the KL"
        assert not equal(ours, 6 * wanted), "the KL is a mean over the states, not their sum"
        assert not equal(ours, wanted / 3), "sum over the actions, then the mean over the states"
        assert equal(ours, wanted), "KL[pi_old, pi], pi_old as it was before the first epoch"


def watch(num_iterations, n_pi):
    """What a loop does, in order, and the optimizers and buffers of its phases."""
    events, optimizers, buffers, agent = [], [], [], TinyAgent()
    obs, returns = torch.zeros(2, 3, 3, dtype=torch.float64), torch.zeros(2, 3)

    def ppo_iteration(iteration):
        events.append(str(iteration))
        return obs.fill_(iteration), returns.fill_(iteration)

    def phase(agent, optimizer, buffer, args):
        events.append("aux")
        optimizers.append(optimizer)
        buffers.append({name: x.clone() for name, x in buffer.items()})

    args = ppg_procgen.Args(n_pi=n_pi, aux_learning_rate=0.125)
    train(agent, num_iterations, ppo_iteration, phase, args)
    return " ".join(events), optimizers, buffers, agent


def test_when_a_phase_runs():
    wanted = "1 2 3 aux 4 5 6 aux 7"
    ours = watch(7, 3)[0]
    assert not ours.startswith("aux"), "nothing is stored before iteration 1: no phase"
    assert not ours.startswith("1 aux"), "iterations count from 1: iteration % n_pi == 0"
    assert ours == wanted, f"7 iterations with n_pi 3 are {wanted}, not {ours}"
    ours = watch(6, 3)[0]
    assert ours != "1 2 3 aux 4 5 6 aux", "no phase after the LAST iteration: nothing follows it"
    assert ours == "1 2 3 aux 4 5 6", f"6 iterations with n_pi 3 are 1 2 3 aux 4 5 6, not {ours}"


def test_what_is_stored():
    for i, buffer in enumerate(watch(7, 3)[2]):
        first = 3 * i + 1
        assert buffer["returns"].shape[1:] == (3,), "(n_pi * N, T): torch.cat, not torch.stack"
        for rows in buffer["obs"][:, 0, 0].tolist(), buffer["returns"][:, 0].tolist():
            assert len(rows) != 2, "the phase needs the rollouts of all n_pi iterations"
            assert len(set(rows)) > 1, "a rollout's tensors are overwritten by the next: clone()"
            assert len(rows) <= 6, "a phase forgets what the phase before it had: empty the buffer"
            assert sorted(rows) == sorted(2 * [first, first + 1, first + 2]), (
                f"phase {i + 1} needs the rollouts {first} to {first + 2}, and has {rows}"
            )


def test_optimizer():
    _, optimizers, _, agent = watch(7, 3)
    hint = "Adam's moments live on from phase to phase: create the optimizer once, before the loop"
    assert len(optimizers) == 2 and optimizers[0] is optimizers[1], hint
    assert isinstance(optimizers[0], torch.optim.Adam), "the optimizer is Adam"
    (group,) = optimizers[0].param_groups
    assert group["lr"] == 0.125, "the auxiliary phase has a step size of its own: aux_learning_rate"
    assert len(group["params"]) == len(list(agent.parameters())), "it trains all of the agent"


def test_published_numbers():
    """The losses of the published code, minibatch by minibatch (tests/test_golden.py)."""
    for case in GOLDEN["auxiliary_phase"]:
        agent = load(ppg_procgen, case["arch"], case["param_seed"])
        parts = [segment(seed, case["nenv"], case["nstep"]) for seed in case["segment_seeds"]]
        buffer = {name: torch.cat([part[name] for part in parts]) for name in ("obs", "returns")}
        args = ppg_procgen.Args(
            e_aux=case["n_aux_epochs"],
            beta_clone=case["beta_clone"],
            vf_true_weight=case["vf_true_weight"],
            aux_minibatch_rollouts=case["aux_minibatch_trajectories"],
        )
        optimizer = torch.optim.Adam(agent.parameters(), lr=case["lr"], eps=1e-8)
        order = torch.arange(len(buffer["obs"])).reshape(len(parts), case["nenv"]).T.flatten()
        with patch.object(torch, "randperm", return_value=order):  # the published one
            metrics = auxiliary_phase(agent, optimizer, buffer, args)
        assert len(metrics) == len(case["minibatch_losses"]), "a dictionary for each gradient step"
        for i, (ours, wanted) in enumerate(zip(metrics, case["minibatch_losses"], strict=True)):
            for name, published, tolerance in (
                ("kl_loss", "pol_distance", 0.1),  # Adam amplifies rounding
                ("aux_value_loss", "vf_aux", 0.01),
                ("real_value_loss", "vf_true", 0.01),
            ):
                difference = abs(float(ours[name]) - wanted[published])
                assert difference <= tolerance * abs(wanted[published]) + 1e-6, (
                    f"{name} of step {i + 1} is {float(ours[name]):.4f}, published "
                    f"{wanted[published]:.4f}. If all other checks pass: return the losses before "
                    f"the step, without their weights"
                )
