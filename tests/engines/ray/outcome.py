"""What a write must have left."""

from __future__ import annotations

from pathlib import Path

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import filenames
from mdsx.storage import open_storage
from tests.engines.ray.scenarios import ROWS


def check(out: Path) -> None:
    """Check that each row is there once, in order, and that the dataset is whole."""
    assert [sample["id"] for sample in mdsx.Dataset(out)] == list(range(ROWS))
    assert mdsx.verify(out).ok


def unused(out: Path) -> list[str]:
    """Return the folders of attempts that the index does not name."""
    named = {filenames.split_part(path)[0] for path in used(out)}
    there = {folder for entry in open_storage(out).list() if (folder := filenames.split_part(entry.key)[0])}
    return sorted(there - named)


def used(out: Path) -> list[str]:
    index = excerpt_of(mdsx.Dataset(out)).shards.index
    return [index.name(shard) for shard in range(len(index.counts))]
