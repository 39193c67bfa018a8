#!/bin/sh
# How many rollouts between auxiliary phases, on hard levels.
# Settings and flags: see jobs.sh.
SEEDS=${SEEDS:-1} # as published: one run of each
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_n_pi
variants=$(vary n_pi ppg_procgen.py "$hard_ppg" --n-pi 2 4 8 16 32)
run_jobs "$@"
