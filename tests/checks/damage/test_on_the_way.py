"""Bytes damaged only in transit are read again, and are no damage."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import mdsx
from mdsx.storage import Piece, Room
from mdsx.storage.base import Sink
from tests.checks.damage.datasets import samples, write
from tests.checks.damage.memory import MemoryStorage


class Flaky(MemoryStorage):
    """Storage that flips a bit of each object at its first read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked = set[str]()

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None, room: Room | None = None) -> None:
        super().download(key, lambda data: sink(self._flipped(key, data)), size=size)

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        piece = super().get(key, start=start, stop=stop)
        return Piece(self._flipped(key, piece.data), piece.etag, piece.total)

    def _flipped(self, key: str, data: bytes) -> bytes:
        if key in self.asked:
            return data
        self.asked.add(key)
        place = len(data) // 2
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("index", ["there", "missing"])
def test_bits_flipped_in_transit_are_no_damage(
    compression: str | None, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, samples(50), shard_size=1500, compression=compression)
    if index == "missing":
        (tmp_path / "index.json").unlink()
    flaky = Flaky(tmp_path)
    for module in ("mdsx.checks.damage.repair", "mdsx.checks.damage.verify"):
        monkeypatch.setattr(importlib.import_module(module), "open_storage", lambda url, *options, **more: flaky)
    plan = mdsx.repair("memory", dry_run=True)
    assert (plan.index, plan.damaged, plan.samples) == ("undamaged" if index == "there" else "missing", [], 50)
    assert flaky.asked == set(flaky.files)
    if index == "there":
        flaky.asked.clear()
        assert list(mdsx.verify("memory")) == []
        assert flaky.asked == set(flaky.files)
