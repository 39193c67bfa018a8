#!/bin/sh
# The paper's PPG on hard levels: 16 games, 100 million steps, 256 environments.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ppg_hard
variants="ppg ppg_procgen.py $hard_ppg"
run_jobs "$@"
