"""StreamingDataset under PyTorch's own DataLoader."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_whole_batches_for_any_number_of_workers(local_url: str, workers: int) -> None:
    data = StreamingDataset(local_url, seed=3, batch_size=32, rank=1, world_size=2)
    plain = DataLoader(data, batch_size=None, num_workers=workers)
    streaming = StreamingDataLoader(StreamingDataset(local_url, seed=3, rank=1, world_size=2), batch_size=32)
    for epoch in range(2):
        data.set_epoch(epoch)
        assert ids(plain) == ids(streaming)
    assert len(plain) == len(streaming) == 15


def test_samples_in_the_defined_order_for_one_worker(local_url: str) -> None:
    data = StreamingDataset(local_url, seed=3)
    order = mdsx.Order(data.view.counts, seed=3)
    shards, samples = order.locate(range(len(order)))
    expected = [mdsx.Dataset(local_url)[order.counts[:s].sum() + i]["id"] for s, i in zip(shards, samples, strict=True)]
    assert [sample["id"] for sample in data] == expected
    data.set_epoch(0)
    batches = DataLoader(data, batch_size=50, num_workers=1, collate_fn=lambda found: [s["id"] for s in found])
    assert [number for batch in batches for number in batch] == expected


def test_more_workers_on_single_samples_are_an_error_that_says_what_to_do(local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="StreamingDataLoader"):
        next(iter(DataLoader(StreamingDataset(local_url), num_workers=2)))


def test_its_own_state_resumes_in_one_process(local_url: str) -> None:
    data = StreamingDataset(local_url, seed=3, batch_size=32)
    batches = iter(data)
    first = [next(batches)["id"].tolist() for _ in range(7)]
    resumed = StreamingDataset(local_url, seed=3, batch_size=32)
    resumed.load_state_dict(data.state_dict())
    whole = ids(StreamingDataset(local_url, seed=3, batch_size=32))
    assert first + ids(resumed) == whole


def test_a_dataset_is_given_as_a_dataset_too(local_url: str) -> None:
    dataset = mdsx.Dataset(local_url, mmap=False)
    assert ids(StreamingDataset(dataset, seed=3, batch_size=64)) == ids(
        StreamingDataset(local_url, seed=3, batch_size=64)
    )
    with pytest.raises(mdsx.UsageError, match=r"mdsx\.Dataset"):
        StreamingDataset(dataset, cache_limit="1GB")
