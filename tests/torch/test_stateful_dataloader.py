"""torchdata's StatefulDataLoader: its own state resumes a StreamingDataset exactly."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from mdsx.torch import StreamingDataLoader, StreamingDataset

from .test_loader import ids

BATCH = 10
LEFT = 100  # of 1,003 samples in whole batches


def stateful(url: str, workers: int, **options: Any) -> tuple[StreamingDataset, StatefulDataLoader[Any]]:
    data = StreamingDataset(url, seed=2, batch_size=BATCH, **options)
    return data, StatefulDataLoader(data, batch_size=None, num_workers=workers)


def uninterrupted(url: str, epoch: int = 0) -> list[list[int]]:
    loader = StreamingDataLoader(StreamingDataset(url, seed=2), BATCH)
    loader.set_epoch(epoch)
    return ids(loader)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("taken", [0, 1, 7, 99])
def test_it_goes_on_where_it_stood(local_url: str, workers: int, taken: int) -> None:
    _, loader = stateful(local_url, workers)
    before = ids(itertools.islice(iter(loader), taken))
    state = json.loads(json.dumps(loader.state_dict()))
    _, resumed = stateful(local_url, workers)
    resumed.load_state_dict(state)
    assert before + ids(resumed) == uninterrupted(local_url)


@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_twice(local_url: str, workers: int) -> None:
    found: list[list[int]] = []
    state = None
    for taken in (5, 11, None):
        _, loader = stateful(local_url, workers)
        if state is not None:
            loader.load_state_dict(state)
        found += ids(itertools.islice(iter(loader), taken))
        state = loader.state_dict()
    assert found == uninterrupted(local_url)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_next_epoch_is_another_order(local_url: str, workers: int) -> None:
    data, loader = stateful(local_url, workers)
    for epoch in range(2):
        data.set_epoch(epoch)
        assert ids(loader) == uninterrupted(local_url, epoch)


def test_a_worker_of_another_count_is_refused_by_name(local_url: str) -> None:
    _, loader = stateful(local_url, 2)
    list(itertools.islice(iter(loader), 3))
    state = loader.state_dict()
    _, other = stateful(local_url, 2)
    snapshots = state["_snapshot"]["_worker_snapshots"]
    for snapshot in snapshots.values():
        snapshot["dataset_state"]["worker"]["count"] = 3
    other.load_state_dict(state)
    with pytest.raises(Exception, match="as many workers"):
        ids(other)
