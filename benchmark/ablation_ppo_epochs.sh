#!/bin/sh
# How often PPO may reuse samples (appendix D), on hard levels.
# Settings and flags: see jobs.sh.
SEEDS=${SEEDS:-1}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_ppo_epochs
variants=$(vary epochs ppo_procgen.py "$hard" --update-epochs 1 2 3 4 5 6)
run_jobs "$@"
