import torch


def auxiliary_phase(agent, optimizer, buffer, args):
    obs, returns = buffer["obs"], buffer["returns"]
    metrics = []
    with torch.no_grad():
        old_logits = torch.stack([agent(trajectory)[0] for trajectory in obs])
    for _ in range(args.e_aux):
        for inds in torch.randperm(len(obs)).split(args.aux_minibatch_rollouts):
            logits, values, aux_values = agent.with_aux_value(obs[inds].flatten(0, 1))
            old, targets = old_logits[inds].flatten(0, 1), returns[inds].flatten()
            KL = (old.exp() * (old - logits)).sum(-1).mean()
            L_aux = 0.5 * (aux_values - targets).square().mean()
            L_value = 0.5 * (values - targets).square().mean()
            loss = L_aux + args.beta_clone * KL + args.vf_true_weight * L_value
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses = {"kl_loss": KL, "aux_value_loss": L_aux, "real_value_loss": L_value}
            metrics.append({name: x.item() for name, x in losses.items()})
    return metrics


def train(agent, num_iterations, ppo_iteration, auxiliary_phase, args):
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.aux_learning_rate, eps=1e-8)
    stored_obs, stored_returns = [], []
    for iteration in range(1, num_iterations + 1):
        obs, returns = ppo_iteration(iteration)
        stored_obs.append(obs.clone())
        stored_returns.append(returns.clone())
        if iteration % args.n_pi == 0 and iteration < num_iterations:
            buffer = {"obs": torch.cat(stored_obs), "returns": torch.cat(stored_returns)}
            auxiliary_phase(agent, optimizer, buffer, args)
            stored_obs.clear()
            stored_returns.clear()
