#!/bin/sh
# PPG on easy levels: 16 games, 25 million steps, 64 environments.
# Settings and flags: see jobs.sh.
. "$(dirname "$0")/jobs.sh"
EXPERIMENT=ppg_easy
variants="ppg ppg_procgen.py --bf16"
run_jobs "$@"
