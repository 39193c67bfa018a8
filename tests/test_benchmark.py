"""The benchmark's programs run to their end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmark"


@pytest.mark.slow
def test_gpu_check_runs_on_a_cpu(tmp_path):
    """So that it is known to work before a GPU is there."""
    command = ["sh", str(BENCHMARK / "gpu_check.sh"), "--device", "cpu", "--quick"]
    environment = os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--out", str(tmp_path / "gpu")], env=environment, check=True)
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert len(report["numerics"]) == 18 and len(report["speed"]) == 6
    assert all(row["steps/s"] > 0 for row in report["speed"])
    assert report["learning"]
