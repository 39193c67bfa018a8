#!/bin/sh
# How often the policy may reuse samples, on hard levels.
# Settings and flags: see jobs.sh.
SEEDS=${SEEDS:-1} # as published: one run of each
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_e_pi
variants=$(vary e_pi ppg_procgen.py "$hard_ppg" --e-pi 1 2 3 4 5 6)
run_jobs "$@"
