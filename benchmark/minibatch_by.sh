#!/bin/sh
# Minibatches of single steps or of whole trajectories, with 64 environments: a check of the default
# of --minibatch-by. Settings and flags: see jobs.sh.
GAMES=${GAMES:-starpilot fruitbot}
SEEDS=${SEEDS:-1 2}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=minibatch_by
variants="
steps ppo_procgen.py --bf16 --total-timesteps 300e3 --minibatch-by steps
trajectories ppo_procgen.py --bf16 --total-timesteps 300e3 --minibatch-by trajectories
"
run_jobs "$@"
