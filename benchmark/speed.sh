#!/bin/sh
# Steps per second and memory of both scripts against CleanRL's, then our own breakdown.
# Usage: benchmark/speed.sh [flags of speed.py, such as --repeats 3 --iterations 2]
# Needs an idle machine. CleanRL goes into a virtual environment of its own, .venv/cleanrl.
set -eu
cd "$(dirname "$0")/.."
cleanrl=.venv/cleanrl
if [ ! -x "$cleanrl/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$cleanrl"
    "$cleanrl/bin/pip" install --quiet -r requirements.txt
    # Its own requirements are of 2023; its two Procgen scripts need only these two packages.
    "$cleanrl/bin/pip" install --quiet --no-deps --ignore-requires-python cleanrl==1.2.0 gym==0.23.1
fi
exec "${PYTHON:-python3}" benchmark/speed.py --cleanrl "$cleanrl/bin/python" "$@"
