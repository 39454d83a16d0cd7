"""The tests in `inside_*.py` pass in clusters of two executors, while processes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.spark.runs import CLUSTER, run_inside, run_speculating

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1000)]
BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch=50"


def test_a_dataset_survives_lost_processes(tmp_path: Path) -> None:
    assert "5 passed" in run_inside("inside_faults.py", tmp_path, CLUSTER, BATCHES)


def test_a_dataset_survives_several_drivers(tmp_path: Path) -> None:
    assert "2 passed" in run_inside("inside_drivers.py", tmp_path, "local[2]", BATCHES)


def test_a_dataset_survives_speculation(tmp_path: Path) -> None:
    assert "2 passed" in run_speculating("inside_speculation.py", tmp_path, BATCHES)
