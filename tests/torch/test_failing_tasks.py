"""An error arrives at its own batch, after all batches before it, however batches are made; a retry begins there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.conftest import Often

N = 208
FAILING = 83  # the sample that is too long, or that the transform refuses
ROW = 4  # samples of a row
WINDOW = 16
ROWS = 3  # of a batch: windows and batches do not end together
WAYS: dict[str, dict[str, Any]] = {
    "1 thread": {"num_threads": 1},
    "2 threads": {"num_threads": 2},
    "3 threads": {"num_threads": 3},
    "no worker": {"num_workers": 0},
    "1 worker": {"num_workers": 1},
    "2 workers": {"num_workers": 2},
    "persistent workers": {"num_workers": 2, "persistent_workers": True},
}
LAYOUTS: dict[str, mdsx.Pack | mdsx.MaxTokens | None] = {
    "samples": None,
    "packed": mdsx.Pack(10 * ROW, length="tokens", window=WINDOW),
    "bounded": mdsx.MaxTokens(10 * ROW, length="tokens", window=WINDOW),
}
GROUPS = ["packed", "bounded"]
FAST = {(way, layout) for way in ("1 thread", "2 threads", "no worker") for layout in LAYOUTS}
FAST |= {("2 workers", "bounded"), ("persistent workers", "packed")}
Transform = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two datasets of N samples of ten values: one is good, the other has a sample that is too long."""
    found = {name: tmp_path_factory.mktemp("tasks") / name for name in ("good", "long")}
    for name, url in found.items():
        with mdsx.Writer(url, {"id": "int64", "tokens": "int32[*]"}, shard_size=1000) as out:
            for number in range(N):
                length = 100 if name == "long" and number == FAILING else 10
                out.write({"id": number, "tokens": np.full(length, number, np.int32)})
    return found


def loader(url: Path, way: str, layout: str, transform: Transform | None = None) -> Any:
    """Return a loader of samples in the order in which they were written."""
    rows = {"samples": ROWS * ROW, "packed": ROWS, "bounded": None}[layout]
    options: dict[str, Any] = {"batching": LAYOUTS[layout], "drop_last": False, **WAYS[way]}
    if "num_threads" in options:
        return mdsx.Loader(url, rows, shuffle=False, transform=transform, rank=0, world_size=1, **options)
    data = StreamingDataset(str(url), shuffle=False, transform=transform, rank=0, world_size=1)
    return StreamingDataLoader(data, rows, **options)


def ids(batch: Any) -> list[int]:
    """Return the numbers of a batch's samples."""
    return [int(number) for row in batch["id"] for number in (row if isinstance(row, list) else np.ravel(row))]


def batches_before(sample: int, layout: str, *, planning: bool) -> int:
    """Return the number of batches that do not need `sample`, or the plan of its window."""
    if planning:
        sample -= sample % WINDOW
    return sample // (ROW if layout == "bounded" else ROW * ROWS)


def check(broken: Any, wanted: list[list[int]], before: int, expected: type[Exception]) -> list[list[int]]:
    """Take the first `before` batches, and fail four times at the next one. Return them."""
    batches = iter(broken)
    found = [ids(next(batches)) for _ in range(before)]
    assert found == wanted[:before]
    state = broken.state_dict()
    for attempt in range(4):
        with pytest.raises(expected):
            next(iter(broken) if attempt % 2 else batches)
    assert broken.state_dict() == state
    return found


@pytest.mark.slow_if(
    "way in {'1 worker', '2 workers', '3 threads'} or (way == 'persistent workers' and layout != 'packed')"
)
@pytest.mark.parametrize("layout", GROUPS)
@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_cannot_be_planned_fails_in_its_place(
    urls: dict[str, Path], way: str, layout: str, often: Often
) -> None:
    wanted = [ids(batch) for batch in loader(urls["good"], "1 thread", layout)]
    for _ in range(often(1, 40)):
        broken = loader(urls["long"], way, layout)
        check(broken, wanted, batches_before(FAILING, layout, planning=True), mdsx.SampleError)
        with pytest.raises(mdsx.SampleError) as caught:
            next(iter(broken))
        assert not any("leave out" in note for note in caught.value.__notes__)  # the batch is good: its plan failed


@pytest.mark.slow_if(
    "way in {'1 worker', 'persistent workers', '3 threads'} or (way == '2 workers' and layout != 'bounded')"
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_shard_that_is_absent_for_a_while_loses_no_batch(
    urls: dict[str, Path], way: str, layout: str, often: Often
) -> None:
    wanted = [ids(batch) for batch in loader(urls["good"], "1 thread", layout)]
    shard, before = urls["good"] / "shard.00008.mdsx", batches_before(80, layout, planning=layout != "samples")
    for _ in range(often(1, 40)):
        broken, away = loader(urls["good"], way, layout), shard.with_name("away")
        shard.rename(away)
        try:
            found = check(broken, wanted, before, mdsx.MissingError)
        finally:
            away.rename(shard)
        state = json.loads(json.dumps(broken.state_dict()))
        assert found + [ids(batch) for batch in broken] == wanted
        resumed = loader(urls["good"], way, layout)
        resumed.load_state_dict(state)
        assert found + [ids(batch) for batch in resumed] == wanted


@pytest.mark.slow_if(
    "way in {'1 worker', '2 workers', '3 threads'} or (way == 'persistent workers' and layout != 'packed')"
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_sample_that_a_transform_refuses_fails_in_its_batch(
    urls: dict[str, Path], way: str, layout: str, often: Often
) -> None:
    wanted = [ids(batch) for batch in loader(urls["good"], "1 thread", layout)]
    for _ in range(often(1, 40)):
        broken = loader(urls["good"], way, layout, refusing)
        check(broken, wanted, batches_before(FAILING, layout, planning=False), ValueError)


def refusing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] == FAILING:
        raise ValueError("bad sample")
    return sample
