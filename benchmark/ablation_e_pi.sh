#!/bin/sh
# How often the policy may reuse samples, on hard levels.
# Settings and flags: see jobs.sh.
# As published, one run of each. All three ablations contain PPG's defaults: each has another seed.
SEEDS=${SEEDS:-1}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_e_pi
variants=$(vary e_pi ppg_procgen.py "$hard_ppg" --e-pi 1 2 3 4 5 6)
run_jobs "$@"
