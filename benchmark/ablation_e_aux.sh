#!/bin/sh
# How often the auxiliary phase may reuse samples, on hard levels.
# Settings and flags: see jobs.sh.
# As published, one run of each. All three ablations contain PPG's defaults: each has another seed.
SEEDS=${SEEDS:-2}
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_e_aux
variants=$(vary e_aux ppg_procgen.py "$hard_ppg" --e-aux 1 2 3 6 9)
run_jobs "$@"
