"""The tests in files `inside_*.py` pass: with a classic session and Connect, and in clusters of two executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.spark.runs import CLUSTER, run_inside, run_speculating

HERE = "../spark_source"
pytestmark = [pytest.mark.engines, pytest.mark.timeout(1000)]
BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch=50"


@pytest.mark.parametrize("master", ["local[2]", "connect"])
def test_all_promises_hold(master: str, tmp_path: Path) -> None:
    assert "passed" in run_inside(f"{HERE}/inside_source.py", tmp_path, master)


def test_a_write_survives_faults(tmp_path: Path) -> None:
    assert "5 passed" in run_inside(f"{HERE}/inside_source_faults.py", tmp_path, CLUSTER, BATCHES)


def test_a_write_survives_speculation(tmp_path: Path) -> None:
    assert "2 passed" in run_speculating(f"{HERE}/inside_source_speculation.py", tmp_path, BATCHES)


def test_spark_3_has_no_such_sources(tmp_path: Path) -> None:
    assert "1 passed" in run_inside(f"{HERE}/inside_earlier.py", tmp_path, "local[1]", version="spark35")
