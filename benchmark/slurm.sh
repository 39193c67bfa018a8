#!/bin/sh
# An experiment as a Slurm array job, one task per game, seed and variant.
# Usage: benchmark/slurm.sh benchmark/ppg_easy.sh [flags of sbatch, such as --gres=gpu:1 --time=12:00:00]
# Five minutes before its time is up, and when it is preempted, a task writes a checkpoint, queues itself
# again and goes on from there. Settings (GAMES, SEEDS, RUNS_DIR, ...) as in jobs.sh; WORKERS=4 on GPUs
# needs --gres=gpu:4.
set -eu
# 138 and 143 are a shell's words for "ended by" SIGUSR1 and SIGTERM.
script=${1:?give the script of an experiment, such as benchmark/ppg_easy.sh}
shift
count=$(sh "$script" --count)
wrap="srun sh '$script' --job \$SLURM_ARRAY_TASK_ID; status=\$?
case \$status in
138 | 143) scontrol requeue \${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID} ;;
*) exit \$status ;;
esac"
exec ${SBATCH:-sbatch} --array="0-$((count - 1))" --requeue --signal=USR1@300 --export=ALL "$@" --wrap "$wrap"
