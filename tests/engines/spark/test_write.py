"""`inside_write.py` passes with Spark 3.5 and 4, and with Connect. A short part of it always runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.spark.runs import run_inside


def test_a_dataframe_becomes_a_dataset(tmp_path: Path) -> None:
    first = "test_every_row_is_written_once_in_the_order_of_the_partitions"
    assert "1 passed" in run_inside(f"inside_write.py::{first}", tmp_path, "local[1]")


@pytest.mark.engines
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("version", "master"), [("spark35", "local[2]"), ("spark", "local[2]"), ("spark", "connect")])
def test_all_promises_hold(version: str, master: str, tmp_path: Path) -> None:
    """Connect only with Spark 4: that of Spark 3.5 needs a package from Maven."""
    assert "passed" in run_inside("inside_write.py", tmp_path, master, version=version)
