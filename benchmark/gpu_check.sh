#!/bin/sh
# Numerics, speed, memory and a few minutes of learning on one GPU, without network: at most 8 minutes.
# Usage: benchmark/gpu_check.sh [--device cpu --quick, to see that it runs before a GPU is there]
set -eu
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" benchmark/gpu_check.py "$@"
