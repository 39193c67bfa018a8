KL_OLD_NEW = 1 / 2 * 2 - 1 / 4 * 1 + 1 / 8 * 0 - 1 / 8 * 1
KL_NEW_OLD = -1 / 8 * 2 + 1 / 2 * 1 + 1 / 8 * 0 + 1 / 4 * 1
FORGETTING = "KL[pi_old, pi]"  # so this is what holds a policy to all it could do
TRYING = "KL[pi, pi_old]"
ESTIMATE = 1 / 2 * (1 / 2 * 2**2 + 1 / 4 * 1**2 + 1 / 8 * 0**2 + 1 / 8 * 1**2)
NEAR = "equal"
FAR = "either"
