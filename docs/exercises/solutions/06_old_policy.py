import ppg_procgen

FIRST_KL = "zero"
DISTANCE = "more"
AUX_VALUE_LOSS = "lower"
WARNING = "neither"


def right_loop(agent, optimizer, buffer, args):
    metrics = []
    buffer["old_logits"] = ppg_procgen.old_policy_logits(agent, buffer, args)
    for _ in range(args.e_aux):
        metrics += ppg_procgen.auxiliary_epoch(agent, optimizer, buffer, args)
    return metrics
