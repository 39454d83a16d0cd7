"""Workers compute nothing for all shards that their rank can compute once: with millions of shards, it takes memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.order import needs
from mdsx.storage.cache import ShardNames
from mdsx.torch import StreamingDataLoader, StreamingDataset


@pytest.mark.slow_if("start == 60")
@pytest.mark.parametrize("start", [0, 60])
def test_forked_workers_share_the_vectors_over_all_shards(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    with mdsx.Writer(s3_url, {"id": "int64"}, shard_size=192) as out:
        for number in range(100):
            out.write({"id": number})
    made = tmp_path / "made"

    def noted(real: Callable[..., None]) -> Callable[..., None]:
        def begin(self: object, *args: Any) -> None:
            with made.open("a") as file:
                file.write(f"{type(self).__name__} {os.getpid()}\n")
            real(self, *args)

        return begin

    for kind in (needs.ShardUses, ShardNames):
        monkeypatch.setattr(kind, "__init__", noted(kind.__init__))
    data = StreamingDataset(s3_url, cache=tmp_path / "cache", seed=1)
    loader = StreamingDataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    loader.load_state_dict({**loader.state_dict(), "position": start})
    assert len([number for batch in loader for number in batch["id"]]) == 100 - start
    here = os.getpid()
    assert made.read_text().splitlines() == [f"ShardNames {here}"] + 2 * [f"ShardUses {here}"]  # of two epochs
