#!/bin/sh
# On a CPU, for an evening: PPO and PPG on a game in which learning shows soon. Where the processor does
# not compute in bfloat16: FLAGS=--no-bf16.
# Settings and flags: see jobs.sh.
GAMES=${GAMES:-starpilot}
SEEDS=${SEEDS:-1}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=laptop
variants="
ppo ppo_procgen.py --bf16 --total-timesteps 1e6
ppg ppg_procgen.py --bf16 --total-timesteps 1e6 --arch detach --n-pi 8
"
run_jobs "$@"
