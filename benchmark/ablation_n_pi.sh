#!/bin/sh
# How many rollouts between auxiliary phases, on hard levels.
# Settings and flags: see jobs.sh.
SEEDS=${SEEDS:-1} # as published: one run of each
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_n_pi
variants=
for value in 2 4 8 16 32; do
    variants="$variants
n_pi_$value ppg_procgen.py $hard_ppg --n-pi $value"
done
run_jobs "$@"
