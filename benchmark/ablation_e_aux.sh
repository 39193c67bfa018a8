#!/bin/sh
# How often the auxiliary phase may reuse samples, on hard levels.
# Settings and flags: see jobs.sh.
SEEDS=${SEEDS:-1} # as published: one run of each
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_e_aux
variants=
for value in 1 2 3 6 9; do
    variants="$variants
e_aux_$value ppg_procgen.py $hard_ppg --e-aux $value"
done
run_jobs "$@"
