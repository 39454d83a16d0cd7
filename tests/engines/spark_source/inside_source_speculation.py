"""Speculative execution under a write with `format("mdsx")`: of two attempts at one task, one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engines.spark.inside_faults import Watched, check, folders, frame, in_background, wait_for
from tests.engines.spark_source.inside_source_faults import saving


def test_of_two_attempts_that_write_at_once_one_counts(spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with (
        Watched(url) as watched,
        in_background(saving(frame(spark, tmp_path, part=3), url)) as saved,
    ):
        wait_for((tmp_path / "stalled").exists)
        wait_for(lambda: list(url.glob("part-00003-*/shard.*")))
        straggler = next(name for name in folders(url) if name.startswith("part-00003"))
        saved()  # thanks to another attempt: the first one still waits
    check(url, watched)
    assert [name[: len("part-00000")] for name in folders(url)] == [f"part-{part:05}" for part in range(4)]
    assert straggler not in folders(url)
    (tmp_path / "continue").touch()
