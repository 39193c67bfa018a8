#!/bin/sh
# PPO with one network for policy and value, and with two (appendix B), on hard levels.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ablation_networks
variants="
one ppo_procgen.py $hard
two ppg_procgen.py $hard_ppg --e-pi 3 --e-v 3 --e-aux 0
"
run_jobs "$@"
