"""Columns of lists, from the writer to every reader: lists of lists in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

COLUMNS = {"id": "int64", "words": "str[*]", "blobs": "bytes[*]?", "trees": "json[*]"}


def sample(number: int) -> dict[str, Any]:
    blobs = None if number % 3 == 0 else [bytes([number])] * (number % 4)
    return {"id": number, "words": [f"w{k}" for k in range(number % 5)], "blobs": blobs, "trees": [None, [number]]}


SAMPLES = [sample(number) for number in range(40)]


@pytest.fixture(params=[None, "zstd"])
def dataset(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    url = str(tmp_path / "lists")
    with mdsx.Writer(url, COLUMNS, shard_size=2000, compression=request.param) as out:
        for each in SAMPLES[:20]:
            out.write(each)
        batch: dict[str, Any] = {name: [each[name] for each in SAMPLES[20:]] for name in COLUMNS}
        out.write_batch({**batch, "id": np.array(batch["id"])})
    return url


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_holds_lists_of_lists(dataset: str, workers: int) -> None:
    data = StreamingDataset(dataset, seed=1)
    found: dict[int, dict[str, Any]] = {}
    for batch in StreamingDataLoader(data, batch_size=8, num_workers=workers):
        for number, *values in zip(*(batch[name] for name in COLUMNS), strict=True):
            found[int(number)] = dict(zip(COLUMNS, [int(number), *values], strict=True))
    assert [found[number] for number in sorted(found)] == SAMPLES


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_in_lists_are_copied_under_zero_copy(dataset: str, workers: int) -> None:
    data = StreamingDataset(dataset, shuffle=False, zero_copy=True)
    for batch in StreamingDataLoader(data, batch_size=8, num_workers=workers):
        for number, blobs in zip(batch["id"].tolist(), batch["blobs"], strict=True):
            assert repr(blobs) == repr(SAMPLES[number]["blobs"])


def test_verify_decodes_every_value_of_a_list(tmp_path: Path) -> None:
    url = tmp_path / "lists"
    with mdsx.Writer(url, {"words": "str[*]"}) as out:
        out.write({"words": ["good", "text"]})
    assert not list(mdsx.verify(str(url)))
    shard = url / "shard.00000.mdsx"
    data = bytearray(shard.read_bytes())
    data[-1] = 0xFF
    shard.write_bytes(data)
    assert any("this is not UTF-8" in str(finding) for finding in mdsx.verify(str(url)))
