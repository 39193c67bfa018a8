#!/bin/sh
# How often PPO may reuse samples (appendix D), on hard levels.
# Settings and flags: see jobs.sh.
SEEDS=${SEEDS:-1}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_ppo_epochs
variants=
for value in 1 2 3 4 5 6; do
    variants="$variants
epochs_$value ppo_procgen.py $hard --update-epochs $value"
done
run_jobs "$@"
