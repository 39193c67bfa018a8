#!/bin/sh
# Held-out levels beside the training: 200 easy levels and 25 million steps, 500 hard ones and 200
# million, as in the Procgen paper; the easy ones with the encoder in bfloat16.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=generalisation
variants="
ppo_easy ppo_procgen.py --bf16 --num-levels 200 --num-test-envs 64
ppg_easy ppg_procgen.py --bf16 --num-levels 200 --num-test-envs 64
ppo_hard ppo_procgen.py $hard --total-timesteps 200e6 --num-levels 500 --num-test-envs 64
ppg_hard ppg_procgen.py $hard_ppg --total-timesteps 200e6 --num-levels 500 --num-test-envs 64
"
run_jobs "$@"
