"""Speculative execution: two attempts at one task write at the same time, and one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mdsx.engines.spark import write
from tests.engines.spark.inside_faults import check_two_attempts_at_once, frame


@pytest.mark.parametrize("straggler", ["stalls", "continues"])
def test_of_two_attempts_that_write_at_once_one_counts(straggler: str, spark: Any, tmp_path: Path) -> None:
    url, rows = tmp_path / "out", frame(spark, tmp_path, part=3)
    check_two_attempts_at_once(lambda: write(rows, str(url), shard_size=50_000), straggler, url, tmp_path)
