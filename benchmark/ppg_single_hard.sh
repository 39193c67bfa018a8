#!/bin/sh
# The paper's PPG with a single network, on hard levels.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ppg_single_hard
variants="detach ppg_procgen.py $hard_ppg --arch detach"
run_jobs "$@"
