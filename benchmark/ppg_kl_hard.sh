#!/bin/sh
# The paper's PPG with a KL penalty instead of clipping, on hard levels.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ppg_kl_hard
variants="kl ppg_procgen.py $hard_ppg --clip-coef 0 --kl-penalty 1"
run_jobs "$@"
