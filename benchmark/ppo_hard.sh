#!/bin/sh
# The paper's PPO on hard levels: 16 games, 100 million steps, 256 environments.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ppo_hard
variants="ppo ppo_procgen.py $hard"
run_jobs "$@"
