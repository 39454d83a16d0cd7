"""The tests in `inside_*.py` pass in clusters of two executors, while processes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.spark.runs import CLUSTER, cluster, run_inside
from tools.environment import PeerEnvironment

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1000)]
BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch=50"


def test_a_dataset_survives_lost_processes(tmp_path: Path) -> None:
    assert "5 passed" in run_inside("inside_faults.py", tmp_path, CLUSTER, BATCHES)


def test_a_dataset_survives_several_drivers(tmp_path: Path) -> None:
    assert "2 passed" in run_inside("inside_drivers.py", tmp_path, "local[2]", BATCHES)


def test_a_dataset_survives_speculation(tmp_path: Path) -> None:
    """Spark starts no second attempt on a host where the first one runs."""
    environment = PeerEnvironment("spark")
    environment.install()
    speculate = ("spark.speculation=true", "spark.speculation.quantile=0.5", "spark.speculation.multiplier=1.1")
    at_once = ("spark.locality.wait=0", "spark.executor.memory=1g", "spark.driver.host=127.0.0.1")
    with cluster(environment, tmp_path / "cluster") as master:
        assert "2 passed" in run_inside("inside_speculation.py", tmp_path, master, BATCHES, *speculate, *at_once)
