"""Who divides the samples among the ranks: a dataset that would be divided twice, or not at all, is refused.

tests/examples/test_frameworks.py runs the frameworks themselves, in several processes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from accelerate import PartialState
from accelerate.data_loader import DataLoaderDispatcher, IterableDatasetShard
from torch.utils.data import ChainDataset, ConcatDataset, DataLoader, DistributedSampler, Subset, random_split

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset, collate

N = 1003


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of 2, as torchrun says it."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def numbers(batches: Iterable[Any]) -> Counter[int]:
    return Counter(number for batch in batches for number in batch["id"].tolist())


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize("workers", [0, 1])
def test_single_samples_on_several_ranks_are_refused(local_url: str, workers: int) -> None:
    plain: Any = DataLoader(StreamingDataset(local_url), batch_size=8, num_workers=workers)
    with pytest.raises(mdsx.UsageError, match=r"single samples .*StreamingDataLoader.*rank=0, world_size=1") as caught:
        next(iter(plain))
    assert "rank 0 of 2" in str(caught.value)
    for data in (StreamingDataset(local_url), StreamingDataset(local_url) + StreamingDataset(local_url)):
        with pytest.raises(mdsx.UsageError, match="single samples"):
            next(iter(data))


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize("workers", [0, 1])
def test_the_ways_out_of_single_samples_work(local_url: str, workers: int) -> None:
    options: dict[str, Any] = {"shuffle": False, "columns": ["id"]}
    whole: Any = DataLoader(StreamingDataset(local_url, rank=0, world_size=1, **options), 8, num_workers=workers)
    assert numbers(whole) == Counter(range(N))
    same: Any = DataLoader(StreamingDataset(local_url, replication=2, **options), 8, num_workers=workers)
    assert numbers(same) == Counter(range(N))  # both ranks see all samples, as asked for
    found = Counter[int]()
    for rank in range(2):
        part = StreamingDataset(local_url, rank=rank, world_size=2, drop_last=False, **options)
        found += numbers(DataLoader(part, 8, num_workers=workers))
    batched = StreamingDataset(local_url, batch_size=8, drop_last=False, **options)
    loader = StreamingDataLoader(StreamingDataset(local_url, **options), 8, drop_last=False, num_workers=workers)
    assert found == Counter(range(N))
    assert numbers(DataLoader(batched, batch_size=None, num_workers=workers)) == numbers(loader)


def test_a_single_process_reads_single_samples(local_url: str) -> None:
    data = StreamingDataset(local_url, columns=["id"])
    assert numbers(DataLoader(data, batch_size=10)) == Counter(range(N))
    assert numbers(DataLoader(ChainDataset([data, data]), batch_size=10)) == Counter(list(range(N)) * 2)


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize("given", [{}, {"rank": 0, "world_size": 2}], ids=str)
@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_part_that_is_divided_again_is_refused(local_url: str, given: Any, batch_size: int | None) -> None:
    data = StreamingDataset(local_url, batch_size=batch_size, **given)
    shard: Any = IterableDatasetShard(data, batch_size=4, num_processes=2, process_index=0)
    with pytest.raises(mdsx.UsageError, match=r"^Accelerate divides .*rank=0, world_size=1"):
        next(iter(shard))


def test_a_whole_that_is_divided_once_works(local_url: str) -> None:
    found = Counter[int]()
    for rank in range(2):
        data = StreamingDataset(local_url, columns=["id"], rank=0, world_size=1)
        shard: Any = IterableDatasetShard(data, batch_size=17, num_processes=2, process_index=rank, drop_last=True)
        found += Counter(int(sample["id"]) for sample in shard)
    assert found.total() == N - N % 34
    assert set(found.values()) == {1}
    even: Any = IterableDatasetShard(data, batch_size=17, num_processes=1)
    assert sum(1 for _ in even) == N  # 59 * 17
    filled: Any = IterableDatasetShard(data, batch_size=17, num_processes=2)
    with pytest.raises(mdsx.UsageError, match=r"fill up the last step with repeated samples.*drop_last=True"):
        next(iter(filled))


@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "forkserver"}]
)
def test_dispatching_one_ranks_batches_is_refused(
    local_url: str, workers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartialState, "_shared_state", {})
    PartialState(cpu=True)
    for batch_size in (None, 8):
        part = StreamingDataset(local_url, batch_size=batch_size, rank=0, world_size=2)
        dispatched: Any = DataLoaderDispatcher(part, batch_size=None if batch_size else 8, **workers)
        with pytest.raises(mdsx.UsageError, match="Accelerate divides samples"):
            next(iter(dispatched))
    whole = StreamingDataset(local_url, columns=["id"], batch_size=8, rank=0, world_size=1, drop_last=False)
    assert numbers(DataLoaderDispatcher(whole, batch_size=None, **workers)) == Counter(range(N))


class Trainer:
    """As much of Hugging Face's as the loader sees. tests/examples/test_frameworks.py has the real one."""

    def evaluation_loop(self, dataloader: Any) -> int:
        return sum(len(batch["id"]) for batch in dataloader)


def test_an_evaluation_of_trainer_needs_even_batches(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.trainer", sys.modules[__name__])

    def valid(**options: Any) -> StreamingDataLoader:
        data = StreamingDataset(local_url, shuffle=False, rank=1, world_size=2)
        return StreamingDataLoader(data, 16, **{"drop_last": False, **options})

    with pytest.raises(
        mdsx.UsageError, match=r'Trainer gathers the tensors of all ranks.*uneven="repeat".*mdsx.Dataset'
    ):
        Trainer().evaluation_loop(valid())
    assert Trainer().evaluation_loop(valid(uneven="repeat")) == 502
    assert Trainer().evaluation_loop(valid(drop_last=True)) == 496
    assert sum(len(batch["id"]) for batch in valid()) == 502  # another loop may take the shares as they are


def test_what_reads_by_number_is_refused(local_url: str) -> None:
    data = StreamingDataset(local_url)
    halves: Any = random_split(data, [0.5, 0.5])
    by_number: Any = Subset(data, range(10))
    for part in (by_number, *halves):
        with pytest.raises(mdsx.UsageError, match=r"read in its order, not by number.*mdsx\.Dataset"):
            next(iter(DataLoader(part, batch_size=4)))
    with pytest.raises(AssertionError, match="does not support IterableDataset"):  # PyTorch's
        ConcatDataset([data, data])
    with pytest.raises(ValueError, match="sampler"):  # PyTorch's
        DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0))


def test_batches_of_batches_are_refused_with_our_collate_too(local_url: str) -> None:
    twice: Any = DataLoader(StreamingDataset(local_url, batch_size=8), batch_size=4, collate_fn=collate)
    with pytest.raises(mdsx.UsageError, match="batches of batches"):
        next(iter(twice))
