"""examples/spark_read.py runs as its first lines say, in an environment with Spark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.environment import PeerEnvironment

ROOT = Path(__file__).parents[3]


@pytest.mark.engines
def test_the_example_reads_selects_and_writes(tmp_path: Path) -> None:
    environment = PeerEnvironment("spark")
    environment.install()
    done = subprocess.run(
        [environment.python, ROOT / "examples" / "spark_read.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(environment.python)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.splitlines() == [
        "1000 samples: struct<id:bigint,score:float>",
        "200 samples: {'id': 'int64', 'score': 'float32'}",
        "the best are there once: True",
        "verified: True",
    ]
