"""Speculative execution under a write with `format("mdsx")`: of two attempts at one task, one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mdsx
from tests.engines.spark.inside_faults import Watched, check, folders, frame, in_background, only_what_counts, wait_for
from tests.engines.spark_source.inside_source_faults import saving
from tests.engines.test_clean import age


@pytest.mark.parametrize("straggler", ["stalls", "continues"])
def test_of_two_attempts_that_write_at_once_one_counts(straggler: str, spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with Watched(url) as watched, in_background(saving(frame(spark, tmp_path, part=3), url)) as saved:
        wait_for(lambda: list(url.glob("part-00003-*/shard.*")))
        (first,) = {path.parent.name for path in url.glob("part-00003-*/shard.*")}
        if straggler == "continues":
            wait_for(lambda: len(list(url.glob("part-00003-*"))) == 2)  # the other attempt has begun
            (tmp_path / "continue").touch()
        saved()
    check(url, watched)
    if straggler == "stalls":
        assert first not in folders(url)  # the other one counts
    (tmp_path / "continue").touch()
    age(url)
    mdsx.clean(url)  # what the attempt that does not count wrote after the end
    check(url)
    only_what_counts(url)
