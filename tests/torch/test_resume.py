"""Exactly once: wherever a run stops and however it resumes, no sample is lost or repeated."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from mdsx.torch import StreamingDataLoader, StreamingDataset

N = 1003


def loaders(url: str, world: int, batch: int, workers: int = 0, **options: Any) -> list[StreamingDataLoader]:
    """Return one loader for each rank."""
    return [
        StreamingDataLoader(
            StreamingDataset(url, seed=9, rank=rank, world_size=world), batch, num_workers=workers, **options
        )
        for rank in range(world)
    ]


def steps(found: list[StreamingDataLoader], count: int | None = None) -> list[int]:
    """Return the samples that the ranks read in `count` steps (None: in the rest of the epoch)."""
    ranks = [iter(loader) for loader in found]
    read = []
    for step in zip(*ranks, strict=True) if count is None else itertools.islice(zip(*ranks, strict=True), count):
        read += [number for batch in step for number in batch["id"].tolist()]
    return read


PHASES = [(1, 32), (2, 20), (3, 7), (4, 16), (8, 5)]  # world size, batch size per rank


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(PHASES, 2)))
def test_any_world_size_resumes_any_other(local_url: str, before: tuple[int, int], after: tuple[int, int]) -> None:
    stopped = loaders(local_url, *before)
    read = steps(stopped, 6)
    states = [loader.state_dict() for loader in stopped]
    assert all(state == states[0] for state in states)
    resumed = loaders(local_url, *after, drop_last=False)
    for loader in resumed:
        loader.load_state_dict(states[-1])
    read += steps(resumed)
    assert Counter(read) == Counter(range(N))
    assert {loader.epoch for loader in resumed} == {1}


@pytest.mark.slow
def test_resuming_twice_with_other_workers_crosses_an_epoch(local_url: str) -> None:
    first = loaders(local_url, 2, 16, workers=2)
    read = steps(first, 5)
    second = loaders(local_url, 3, 11, workers=1)
    for loader in second:
        loader.load_state_dict(first[0].state_dict())
    read += steps(second, 4)
    third = loaders(local_url, 1, 32, workers=0, drop_last=False)
    third[0].load_state_dict(second[2].state_dict())
    read += steps(third)
    assert Counter(read) == Counter(range(N))
    assert third[0].state_dict()["position"] == 0
    fourth = loaders(local_url, 2, 8, workers=1, drop_last=False)
    for loader in fourth:
        loader.load_state_dict(third[0].state_dict())
    assert Counter(steps(fourth)) == Counter(range(N))


def test_resumed_batches_equal_an_uninterrupted_run(local_url: str) -> None:
    whole = [batch["id"].tolist() for batch in loaders(local_url, 1, 32)[0]]
    for stop in (0, 1, 17, len(whole)):
        (stopped,) = loaders(local_url, 1, 32)
        batches = iter(stopped)
        for _ in range(stop):
            next(batches)
        (resumed,) = loaders(local_url, 1, 32, workers=2)
        resumed.load_state_dict(stopped.state_dict())
        if stop < len(whole):
            assert [batch["id"].tolist() for batch in resumed] == whole[stop:]
        else:
            assert resumed.epoch == 1


def test_resume_after_the_last_batch_continues_next_epoch(local_url: str) -> None:
    (stopped,) = loaders(local_url, 1, 100)
    batches = iter(stopped)
    for _ in range(9):
        next(batches)
    (resumed,) = loaders(local_url, 1, 200)
    resumed.load_state_dict(stopped.state_dict())  # position 900 of 1003
    assert list(resumed) == []
    assert resumed.epoch == 1
    assert len(list(resumed)) == 5
