#!/bin/sh
# The value function trained in both phases, or in the policy phase alone (appendix C), on hard
# levels. The paper does not say with how many epochs; 7 use each sample as often as 1 + 6 do.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_value_phase
variants="
both ppg_procgen.py $hard_ppg
policy_phase ppg_procgen.py $hard_ppg --vf-true-weight 0 --e-v 7
"
run_jobs "$@"
