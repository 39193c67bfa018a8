def gae(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    advantages, advantage = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        going_on = 1 - next_done
        delta = rewards[t] + gamma * going_on * next_value - values[t]
        advantage = delta + gamma * gae_lambda * going_on * advantage
        advantages[t] = advantage
        next_value, next_done = values[t], dones[t]
    return advantages
