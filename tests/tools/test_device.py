"""The tool for machines with a GPU: its program runs without one, and its spans of time are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.device.overlap import shared, united

ROOT = Path(__file__).parents[2]


def test_time_beside_kernels_is_counted_once() -> None:
    kernels = united([(5.0, 7.0), (0.0, 2.0), (1.0, 3.0), (6.0, 6.5)])
    assert kernels == [(0.0, 3.0), (5.0, 7.0)]
    assert shared((2.0, 6.0), kernels) == 2.0
    assert shared((3.0, 5.0), kernels) == 0.0


@pytest.mark.slow
def test_the_program_runs_from_anywhere_without_an_environment(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    options = ["--small", "--device", "cpu", "--threads", "2", "--decoder", "pillow", "--parts", "bytes,train"]
    program = [sys.executable, str(ROOT / "tools" / "device" / "run.py"), *options, "--out", str(out)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(program, cwd=tmp_path, env=environment, check=True, timeout=250)
    found = json.loads(out.read_text())
    assert len(found["bytes"]) == 16
    assert all(row["batches"] > 0 for row in found["bytes"].values())
    assert found["train"]["on the device already"]["ms a step"] > 0
