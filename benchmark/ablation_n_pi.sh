#!/bin/sh
# How many rollouts between auxiliary phases, on hard levels.
# Settings and flags: see jobs.sh.
# As published, one run of each. All three ablations contain PPG's defaults: each has another seed.
SEEDS=${SEEDS:-3}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_n_pi
variants=$(vary n_pi ppg_procgen.py "$hard_ppg" --n-pi 2 4 8 16 32)
run_jobs "$@"
