ANSWERS = {
    "A": "advantages with the wrong sign",  # episodic_return falls below chance
    "B": "log-probability of another action",  # approx_kl is large from the second iteration on
    "C": "gradients kept in the auxiliary phase",  # kl_loss is large, the losses do not fall
    "D": "targets are the old values",  # explained_variance is 1 from the start
    "E": "ends of episodes ignored",  # value_loss starts too large
    "F": "old policy in the loop",  # kl_loss is exactly 0
}
