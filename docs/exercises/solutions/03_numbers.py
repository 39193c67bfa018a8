import math


def first_ratio():
    return 1


def first_entropy():
    return math.log(15)


def first_kl():
    return 0


def gradient_steps(num_envs, num_steps, total_timesteps, num_minibatches, update_epochs):
    iterations = math.ceil(total_timesteps / (num_envs * num_steps))
    return iterations * update_epochs * num_minibatches


def auxiliary_steps(num_envs, n_pi, aux_minibatch_rollouts, e_aux):
    return e_aux * math.ceil(num_envs * n_pi / aux_minibatch_rollouts)


def buffer_bytes(num_envs, num_steps, n_pi):
    return num_envs * num_steps * n_pi * 64 * 64 * 3
