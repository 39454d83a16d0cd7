"""Sizes of raw bytes that are only estimates: the cache finds out, and keeps its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import mdsx
from mdsx.testing.far_disk import SCHEME
from mdsx.testing.format_damage import cached_files
from mdsx.testing.subject import COLUMNS, COUNT, FIRST, all_of, sample, shards_of
from tests.shards.formats.more_lines import write_more

NAMES = [name for name in COLUMNS if name != "data"]


@pytest.mark.parametrize("estimate", [0.02, 0.5, 1.5, 4.0])
@pytest.mark.parametrize("limit", [None, 12_000])
def test_a_wrong_estimate_changes_no_sample(estimate: float, limit: int | None, tmp_path: Path) -> None:
    write_more(tmp_path / "data", {name: COLUMNS[name] for name in NAMES}, shards_of(NAMES, FIRST), "packed", estimate)
    right = [{name: sample(FIRST + number)[name] for name in NAMES} for number in range(COUNT)]
    for _ in range(2):
        data = mdsx.Dataset(f"{SCHEME}{tmp_path / 'data'}", cache=mdsx.Cache(tmp_path / "cache", limit=limit))
        assert all_of(data) == right
        assert all_of(data[number] for number in range(0, COUNT, 5)) == right[::5]
    size = sum(path.stat().st_size for path in cached_files(tmp_path / "cache"))
    assert 0 < size <= (limit or size)
