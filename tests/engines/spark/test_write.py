"""`inside_write.py` passes with Spark 3.5 and 4, and with Connect."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engines.spark.runs import LIMIT, ROOT, run_inside, variables
from tools.environment import PeerEnvironment


@pytest.mark.engines
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("version", "master"), [("spark35", "local[2]"), ("spark", "local[2]"), ("spark", "connect")])
def test_all_promises_hold(version: str, master: str, tmp_path: Path) -> None:
    """Connect only with Spark 4: that of Spark 3.5 needs a package from Maven."""
    assert "passed" in run_inside("inside_write.py", tmp_path, master, version=version)


@pytest.mark.engines
def test_the_example(tmp_path: Path) -> None:
    environment = PeerEnvironment("spark")
    environment.install()
    command = [environment.python, ROOT / "examples" / "spark_write.py", tmp_path / "new"]
    setting = variables(environment, tmp_path, "local[2]")
    done = subprocess.run(command, env=setting, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stdout.splitlines() == [
        "1000 samples in 1 shard: {'id': 'int64', 'text': 'str', 'vector': 'float32[2]'}",
        "one epoch has every row once: True",
    ], done.stderr
