#!/bin/sh
# Held-out levels beside the training: 200 easy levels, 500 hard ones.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=generalisation
variants="
ppo_easy ppo_procgen.py --bf16 --num-levels 200 --num-test-envs 64
ppg_easy ppg_procgen.py --bf16 --num-levels 200 --num-test-envs 64
ppo_hard ppo_procgen.py $hard --num-levels 500 --num-test-envs 64
ppg_hard ppg_procgen.py $hard_ppg --num-levels 500 --num-test-envs 64
"
run_jobs "$@"
