"""The tests in files `inside_*.py` pass: with a classic session and Connect, and in clusters of two executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.spark.runs import CLUSTER, run_inside

HERE = "../spark_source"
BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch=50"


def test_a_dataset_is_read_and_written(tmp_path: Path) -> None:
    first = "test_what_is_read_and_written_is_the_same"
    assert "1 passed" in run_inside(f"{HERE}/inside_source.py::{first}", tmp_path, "local[1]")


@pytest.mark.engines
@pytest.mark.parametrize("master", ["local[2]", "connect"])
def test_all_promises_hold(master: str, tmp_path: Path) -> None:
    assert "passed" in run_inside(f"{HERE}/inside_source.py", tmp_path, master)


@pytest.mark.engines
def test_a_write_survives_faults(tmp_path: Path) -> None:
    assert "passed" in run_inside(
        f"{HERE}/inside_source_faults.py", tmp_path, CLUSTER, "spark.task.maxFailures=4", BATCHES
    )


@pytest.mark.engines
def test_a_write_survives_speculation(tmp_path: Path) -> None:
    speculative = ["speculation=true", "speculation.interval=50ms", "speculation.multiplier=1.1"]
    settings = [f"spark.{setting}" for setting in (*speculative, "speculation.quantile=0.5")]
    assert "1 passed" in run_inside(f"{HERE}/inside_source_speculation.py", tmp_path, CLUSTER, *settings, BATCHES)
