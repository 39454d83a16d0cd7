"""Speculative execution under a write with `format("mdsx")`: of two attempts at one task, one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines.spark.inside_faults import check_two_attempts_at_once, frame
from tests.engines.spark_source.inside_source_faults import saving


@pytest.mark.parametrize("straggler", ["stalls", "continues"])
def test_of_two_attempts_that_write_at_once_one_counts(straggler: str, spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    check_two_attempts_at_once(saving(frame(spark, tmp_path, part=3), url), straggler, url, tmp_path)
