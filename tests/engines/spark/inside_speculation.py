"""Speculative execution: two attempts at one task write at the same time, and one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mdsx.engines.spark import write
from tests.engines.spark.inside_faults import Watched, check, folders, frame, in_background, wait_for


def test_of_two_attempts_that_write_at_once_one_counts(spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with (
        Watched(url) as watched,
        in_background(lambda: write(frame(spark, tmp_path, part=3), str(url), shard_size=50_000)) as written,
    ):
        wait_for((tmp_path / "stalled").exists)
        wait_for(lambda: list(url.glob("part-00003-*/shard.*")))
        straggler = next(name for name in folders(url) if name.startswith("part-00003"))
        written()  # thanks to another attempt: the first one still waits
    check(url, watched)
    assert [name[: len("part-00000")] for name in folders(url)] == [f"part-{part:05}" for part in range(4)]
    assert straggler not in folders(url)
    (tmp_path / "continue").touch()
