#!/bin/sh
# PPO on easy levels: 16 games, 25 million steps, 64 environments.
# With the encoder in bfloat16; FLAGS=--no-bf16 for float32. Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ppo_easy
variants="ppo ppo_procgen.py --bf16"
run_jobs "$@"
