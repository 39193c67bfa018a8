"""Exercise 5: PPG from PPO. 90 minutes.

`ppo_procgen.py` is given, and a network with a third head. Write what is missing: the auxiliary
phase, and the loop that decides when it runs. Then:
python -m pytest docs/exercises/05_ppg_from_ppo.py

R trajectories of T steps are stored. Networks take states without the two dimensions (R, T), that
is (B, ...): agent(obs) returns logits (B, A), which are log-probabilities, and values (B,);
agent.with_aux_value(obs) returns logits, values and aux_values (B,).
"""

from itertools import pairwise
from unittest.mock import Mock, patch

import torch
import torch.nn.functional as F
from torch import nn

import ppg_procgen
from golden_recipe import GOLDEN, load, segment


def auxiliary_phase(agent, optimizer, buffer, args):
    """args.e_aux epochs on L^joint + args.vf_true_weight * L^value, with args.beta_clone.

    buffer: a dictionary with the tensors obs (R, T, ...), of any type, which is left as it is, and
    returns (R, T). A minibatch has args.aux_minibatch_rollouts whole
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
    follow, on all their rollouts: a dictionary with obs and returns, as above. What it returns is
    not needed here. The optimizer is Adam with args.aux_learning_rate.
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


ENCODERS = {"policy": "policy_encoder", "aux_value": "policy_encoder", "value": "value_encoder"}


class Recorder(torch.optim.SGD):
    """Gradient descent that notes, for each step, the rows it was for and the heads' gradients."""

    def __init__(self, agent, buffer):
        super().__init__(agent.parameters(), lr=1.0)
        self.agent, self.obs, self.steps = agent, buffer["obs"].flatten(0, 1), []

    def step(self):
        trained = [call["obs"] for call in self.agent.calls if call["trained"]]
        rows = {round(float(x)) for obs in trained for x in obs[:, 0] * len(self.obs)}
        with torch.no_grad():
            logits, values, aux_values = self.agent.with_aux_value(self.obs)
        step = {"rows": rows, "logits": logits, "values": values, "aux_values": aux_values}
        for name, encoder in ENCODERS.items():
            head = getattr(self.agent, f"{name}_head")
            weight, bias = (0 * x if x.grad is None else x.grad for x in head.parameters())
            step[f"{name}_head"] = torch.cat([weight, bias[:, None]], 1).detach()
            features = getattr(self.agent, encoder)(self.obs).detach()
            step[f"{name}_inputs"] = F.pad(features, (0, 1), value=1.0)  # 1 is the bias's
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
    torch.manual_seed(0)
    agent, buffer = TinyAgent(), tiny_buffer(num_trajectories, 3)
    if left_behind:
        for weight in agent.parameters():
            weight.grad = torch.full_like(weight, left_behind)
    optimizer = Recorder(agent, buffer)
    run_phase(agent, optimizer, buffer, ppg_procgen.Args(**flags))
    assert optimizer.steps, "optimizer.step() was never called"
    trained = any(step["rows"] for step in optimizer.steps)
    assert trained, "no gradient reaches the network: loss.backward() is missing"
    return optimizer.steps


def run_phase(agent, optimizer, buffer, args):
    """What the phase returns; some errors of PyTorch in words."""
    taken = AssertionError("write it yourself: ppg_procgen has the answer")
    given = {"old_policy_logits": taken, "auxiliary_epoch": taken}
    try:
        with patch.multiple(
            ppg_procgen, **{name: Mock(side_effect=error) for name, error in given.items()}
        ):
            return auxiliary_phase(agent, optimizer, buffer, args)
    except RuntimeError as error:
        hints = {
            "second time": "the old logits are data, no path for a gradient: torch.no_grad(); or "
            "backward() is called twice in a step: add the losses, then call it once",
            "dtype": "leave the type of obs, and give to the network what is stored",
        }
        hint = next((words for name, words in hints.items() if name in str(error)), None)
        if hint is None:
            raise
        raise AssertionError(hint) from None


def equal(ours, wanted):
    return torch.allclose(ours, wanted.to(ours), rtol=1e-4, atol=1e-6)


def check(ours, right, *mistakes):
    """Fail with the hints of the mistakes that lead to our numbers, if any does, or the last."""
    *mistakes, (_, otherwise) = mistakes
    likely = [words for wrong, words in mistakes if equal(ours, wrong)]
    fits = equal(ours, right)
    assert fits, "; or: ".join(likely) or f"no mistake that this check knows. Wanted: {otherwise}"


def gradient(step, head, errors):
    """The head's gradient, if `errors` are those of the loss by what it says of each state."""
    rows = sorted(step["rows"])
    return errors[rows].T @ step[f"{head}_inputs"][rows] / len(rows)


def test_minibatches():
    steps = steps_of_a_phase(9, e_aux=3, aux_minibatch_rollouts=2)
    assert len(steps) == 15, "9 trajectories in minibatches of 2: 5 steps in each of 3 epochs"
    for step in steps:
        whole = all(row // 3 * 3 + t in step["rows"] for row in step["rows"] for t in range(3))
        assert whole, "a minibatch has WHOLE trajectories: shuffle their numbers, not the steps"
    epochs = [[step["rows"] for step in steps[i : i + 5]] for i in (0, 5, 10)]
    for epoch in epochs:
        visits_all = set.union(*epoch) == set(range(27))
        assert visits_all, "an epoch visits every trajectory once"
    same = epochs[0] == epochs[1]
    assert not same, "shuffle anew for each epoch"


RETURNS = tiny_buffer(4, 3)["returns"].reshape(12, 1)
HALVES = dict(e_aux=1, aux_minibatch_rollouts=2)  # of 4 trajectories
ADD_UP = "the gradients of two minibatches add up: zero_grad() for each"


def test_value_losses():
    step = steps_of_a_phase(4, vf_true_weight=0.25, **HALVES)[0]
    for what, head, weight in ("L^aux", "aux_value", 1.0), ("L^value", "value", 0.25):
        values = step[f"{head}s"][:, None]
        right = gradient(step, head, weight * (values - RETURNS))
        crossed = gradient(step, head, weight * (values - RETURNS[sorted(step["rows"])].mean()))
        missing = f"{what} is missing: {head}_head has no gradient, or it was cleared before step()"
        check(
            step[f"{head}_head"],
            right,
            (0 * right, missing),
            (2 * right, f"{what} has a factor 1/2"),
            (6 * right, f"{what} is a mean over the minibatch, not a sum"),
            (right / weight, "vf_true_weight weighs L^value"),
            (
                crossed,
                f"{what}: values (B,) minus returns (B, 1) are (B, B); returns are (B,), too",
            ),
            (None, f"1/2 the mean square of {head}s - returns, of the same states"),
        )


def test_gradients_are_the_minibatches_own():
    steps = steps_of_a_phase(4, left_behind=0.5, **HALVES)
    first, last = (step["aux_value_head"] for step in (steps[0], steps[-1]))
    own = [gradient(step, "aux_value", step["aux_values"][:, None] - RETURNS) for step in steps]
    leftover, added = equal(first, own[0] + 0.5), equal(last, own[0] + own[-1])
    hint = "the policy phase leaves gradients behind: zero_grad() BEFORE the first backward()"
    assert not leftover, hint
    assert not added, ADD_UP


def test_kl():
    """KL[pi_old, pi] has the gradient E[pi - pi_old] for what the policy's head says."""
    steps = steps_of_a_phase(4, e_aux=3, aux_minibatch_rollouts=2, beta_clone=0.5)
    none = [bool(step["policy_head"].abs().max() < 1e-6) for step in steps]
    anew = none == [True, False] * 3
    hint = "pi_old is computed ONCE, before the first epoch: what is computed anew pulls nowhere"
    assert not anew, hint
    missing = all(none)
    assert not missing, f"the KL is missing, or its gradient cleared before step(); or {hint}"
    paired = none[0]
    assert paired, "pi IS pi_old before the first step: index states and old logits alike"
    for before, step in pairwise(steps):
        old, logits = steps[0]["logits"], step["logits"]
        pi, logratio = logits.exp(), logits - old
        right = gradient(step, "policy", 0.5 * (pi - old.exp()))
        turned = 0.5 * pi * (logratio - (pi * logratio).sum(-1, keepdim=True))
        weights = "that is KL[pi, pi_old]: weigh by the OLD probabilities"
        check(
            step["policy_head"],
            right,
            (gradient(step, "policy", turned), weights),
            (-gradient(step, "policy", turned), weights),
            (-right, "the KL is positive, log pi_old minus log pi, and a penalty: add it"),
            (2 * right, "beta_clone weighs the KL"),
            (6 * right, "the KL is a mean over the states, not their sum"),
            (right / 3, "sum over the actions, then the mean over the states"),
            (before["policy_head"] + right, ADD_UP),
            (None, "the gradient of KL[pi_old, pi], pi_old as it was before the first epoch"),
        )


def watch(num_iterations, n_pi):
    """What a loop does, in order, and the optimizers and buffers of its phases."""
    events, optimizers, buffers, agent = [], [], [], TinyAgent()
    args = ppg_procgen.Args(n_pi=n_pi, aux_learning_rate=0.125)
    obs, returns = torch.zeros(2, 3, 3, dtype=torch.float64), torch.zeros(2, 3)

    def ppo_iteration(iteration):
        events.append(str(iteration))
        return obs.fill_(iteration), returns.fill_(iteration)

    def phase(trained, optimizer, buffer, given):
        own = trained is agent and given is args
        assert own, "the phase is called with the agent, the optimizer, the buffer and args"
        events.append("aux")
        optimizers.append(optimizer)
        has_both = isinstance(buffer, dict) and {"obs", "returns"} <= set(buffer)
        assert has_both, 'the buffer is a dictionary with the keys "obs" and "returns"'
        kept = {name: buffer[name] for name in ("obs", "returns")}
        tensors = all(isinstance(x, torch.Tensor) for x in kept.values())
        assert tensors, "the buffer has tensors, no lists: torch.cat makes one of a list"
        buffers.append({name: x.clone() for name, x in kept.items()})
        return []

    train(agent, num_iterations, ppo_iteration, phase, args)
    return " ".join(events), optimizers, buffers, agent


def test_when_a_phase_runs():
    wanted = "1 2 3 aux 4 5 6 aux 7"
    ours = watch(7, 3)[0]
    assert not ours.startswith("0"), "iterations count from 1: range(1, num_iterations + 1)"
    assert not ours.startswith("aux"), "nothing is stored before iteration 1: no phase"
    assert not ours.startswith("1 aux"), "iterations count from 1: iteration % n_pi == 0"
    assert ours == wanted, f"7 iterations with n_pi 3 are {wanted}, not {ours}"
    ours = watch(6, 3)[0]
    assert ours != "1 2 3 aux 4 5 6 aux", "no phase after the LAST iteration: nothing follows it"
    assert ours == "1 2 3 aux 4 5 6", f"6 iterations with n_pi 3 are 1 2 3 aux 4 5 6, not {ours}"


def test_what_is_stored():
    buffers = watch(7, 3)[2]
    assert buffers, "no phase took place"
    for i, buffer in enumerate(buffers):
        first = 3 * i + 1
        for name, wanted in ("returns", (3,)), ("obs", (3, 3)):
            shape = tuple(buffer[name].shape)
            hint = f"(n_pi * N, T, ...), not {shape}: torch.cat along dimension 0, not torch.stack"
            assert shape[1:] == wanted, f"{name}: {hint}"
        for rows in buffer["obs"][:, 0, 0].tolist(), buffer["returns"][:, 0].tolist():
            assert len(rows) != 2, "the phase needs the rollouts of all n_pi iterations"
            assert len(set(rows)) > 1, "a rollout's tensors are overwritten by the next: clone()"
            assert len(rows) <= 6, "a phase forgets what the phase before it had: empty the buffer"
            assert sorted(rows) == sorted(2 * [first, first + 1, first + 2]), (
                f"phase {i + 1} needs the rollouts {first} to {first + 2}, and has {rows}"
            )


def test_optimizer():
    _, optimizers, _, agent = watch(7, 3)
    assert optimizers, "no phase took place"
    hint = "Adam's moments live on from phase to phase: create the optimizer once, before the loop"
    once, kind = len({id(x) for x in optimizers}) == 1, type(optimizers[0])
    assert once, hint
    assert kind is torch.optim.Adam, "the optimizer is Adam"
    groups = optimizers[0].param_groups
    own = all(group["lr"] == 0.125 for group in groups)
    assert own, "the auxiliary phase has a step size of its own: aux_learning_rate"
    trained = {id(weight) for group in groups for weight in group["params"]}
    everything = trained == {id(weight) for weight in agent.parameters()}
    assert everything, "it trains all of the agent, and nothing else"
    plain = all(not group["weight_decay"] and not group["maximize"] for group in groups)
    assert plain, "Adam without weight decay, and the loss is minimized"


def test_published_numbers():
    """The losses of the published code, minibatch by minibatch (tests/test_golden.py)."""
    for other in (
        test_minibatches,
        test_value_losses,
        test_gradients_are_the_minibatches_own,
        test_kl,
    ):
        try:
            other()
        except AssertionError:
            raise AssertionError("repair what the other checks say first") from None
    names = {"kl_loss", "aux_value_loss", "real_value_loss"}
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
        with patch.object(torch, "randperm", return_value=order) as shuffle:  # the published
            metrics = run_phase(agent, optimizer, buffer, args)
        used = shuffle.called
        assert used, "torch.randperm(R) shuffles, called by this name: the check replaces it"
        assert metrics is not None, "auxiliary_phase returns nothing: is `return` missing?"
        named = all(isinstance(step, dict) and names <= set(step) for step in metrics)
        assert named, f"return a list of dictionaries with the keys {', '.join(sorted(names))}"
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
                    f"{wanted[published]:.4f}: return the losses before the step, without their "
                    f"weights"
                )
