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
