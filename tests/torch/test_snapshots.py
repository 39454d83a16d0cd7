"""A state that was saved before parts were appended continues with the dataset as it was."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.torch.test_loader import ids

N, BATCH = 60, 5


@pytest.fixture
def url(tmp_path: Path) -> str:
    """N samples, and 20 more in a part that is not appended yet."""
    for folder, numbers in ((tmp_path, range(N)), (tmp_path / "part-00000", range(N, N + 20))):
        with mdsx.Writer(folder, {"id": "int64"}, shard_size=300) as out:
            for number in numbers:
                out.write({"id": number})
    return str(tmp_path)


def opened(url: str, **options: Any) -> StreamingDataLoader:
    return StreamingDataLoader(StreamingDataset(url, seed=4), BATCH, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_continues_with_the_snapshot(url: str, workers: int) -> None:
    expected = ids(opened(url))
    loader = opened(url)
    read = ids(itertools.islice(iter(loader), 4))
    state = loader.state_dict()
    mdsx.append(url, "part-00000")
    options = {"num_workers": workers, "persistent_workers": bool(workers)}
    resumed = opened(url, **options)
    if workers:
        next(iter(resumed))  # its workers read the whole dataset
    assert len(resumed) == (N + 20) // BATCH
    resumed.load_state_dict(state)
    assert read + ids(resumed) == expected
    assert len(resumed) == N // BATCH
    assert sorted(itertools.chain(*ids(resumed))) == list(range(N))
    assert sorted(itertools.chain(*ids(opened(url)))) == list(range(N + 20))


def test_a_loader_returns_from_the_snapshot(url: str) -> None:
    old = opened(url).state_dict()
    mdsx.append(url, "part-00000")
    loader = opened(url)
    new = loader.state_dict()
    for state, samples in ((old, N), (new, N + 20), (old, N)):
        loader.load_state_dict(state)
        assert sorted(itertools.chain(*ids(loader))) == list(range(samples))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stateful_loader_continues_with_the_snapshot(url: str, workers: int) -> None:
    def stateful() -> StatefulDataLoader[Any]:
        data = StreamingDataset(url, seed=4, batch_size=BATCH)
        return StatefulDataLoader(data, batch_size=None, num_workers=workers)

    expected, loader = ids(opened(url)), stateful()
    read = ids(itertools.islice(iter(loader), 4))
    state = loader.state_dict()
    mdsx.append(url, "part-00000")
    resumed = stateful()
    resumed.load_state_dict(state)
    assert read + ids(resumed) == expected


def test_a_dataset_continues_with_the_snapshot(url: str) -> None:
    data = StreamingDataset(url, seed=4, batch_size=BATCH)
    iterator = iter(data)
    read = ids(itertools.islice(iterator, 4))
    state, expected = data.state_dict(), read + ids(iterator)
    mdsx.append(url, "part-00000")
    resumed = StreamingDataset(url, seed=4, batch_size=BATCH)
    waiting = iter(resumed)
    resumed.load_state_dict(state)
    assert read + ids(waiting) == expected
    assert len(resumed) == N // BATCH
