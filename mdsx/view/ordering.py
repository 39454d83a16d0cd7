"""Compute the samples of a batch on each rank, with the loaders' own order and batching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.datasets import Dataset, Mixture, view_of
from mdsx.errors import UsageError, shown
from mdsx.loader import course_of
from mdsx.order import Course, Position, Shuffle
from mdsx.shards import View
from mdsx.stream import Cursor, SampleInfo, SampleSteps, first_task

MOST_SAMPLES = 2000
"""Samples of a rank that are listed."""

MOST_RANKS = 64
"""Ranks that are summarised: those around the requested one."""

MOST_LOCATED = 2**18
"""The largest batch of a rank, and about the most samples of all summarised ranks."""


@dataclass(frozen=True)
class Question:
    """A run, and one batch of it. `batch_size` is a rank's; `lanes` and `shuffle_block` None are the defaults."""

    seed: int = 0
    epoch: int = 0
    batch: int = 0
    batch_size: int = 32
    world_size: int = 1
    rank: int = 0
    lanes: int | None = None
    shuffle_block: int | None = None
    shuffle: bool = True
    drop_last: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Question:
        """Parse a form's fields. Raise UsageError for a field that is not a number of at least 0."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = given.get(field.name, "").strip().replace(",", "").replace("_", "")
            if not text:
                continue
            if field.name in ("shuffle", "drop_last"):
                values[field.name] = text == "true"
            elif text.isascii() and text.isdigit() and len(text) <= 20:
                values[field.name] = int(text)
            else:
                raise UsageError(f"{field.name} must be an integer of at least 0", found=shown(text))
        return cls(**values)


def answer(dataset: Dataset | Mixture, question: Question) -> dict[str, Any]:
    """Return the samples of the batch. Raise UsageError if there is no such batch, rank or run."""
    view = view_of(dataset)
    shuffle = Shuffle(question.lanes, question.shuffle_block) if question.shuffle else False
    course = course_of(dataset, view, question.seed, shuffle, None)
    if question.batch_size > MOST_LOCATED:
        raise UsageError("the page shows batches of at most 262,144 samples", found=f"batch_size={question.batch_size}")
    steps = SampleSteps(course.epoch_samples, question.batch_size, question.world_size, question.drop_last)
    steps.check(question.epoch)
    batches = steps.count()
    if question.batch >= batches:
        raise UsageError(f"there is no batch {question.batch:,}: the epoch has {batches:,}, numbered from 0")
    if question.rank >= question.world_size:
        raise UsageError(f"there is no rank {question.rank:,}: the world size is {question.world_size:,}")
    start = question.batch * steps.global_batch_size
    task = first_task(steps, Cursor(question.epoch, Position(start)))
    ranks = _around(question)
    shares = [steps.rank_share([task], course, rank).ticks for rank in ranks]
    located = _located(course, shares)
    info = SampleInfo(view, course.epoch_samples, question.seed, column=None, seeds=False)
    return {
        "batches": batches,
        "epoch_samples": course.epoch_samples,
        "lanes": course.lanes,
        "shuffle_block": course.shuffle_block,
        "global_batch": task.stop - task.start,
        "start": start,
        "ranks": [_sum(rank, each) for rank, each in zip(ranks, located, strict=True)],
        "samples": _rows(info, view, located[ranks.index(question.rank)]),
        "all": steps.share(task, question.rank),
    }


_Located = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _around(question: Question) -> range:
    """Return the ranks to summarise."""
    many = max(1, min(MOST_RANKS, MOST_LOCATED // question.batch_size, question.world_size))
    first = max(0, min(question.rank - many // 2, question.world_size - many))
    return range(first, first + many)


def _located(course: Course, shares: list[NDArray[np.int64]]) -> list[_Located]:
    """Return the positions of each share, counted over all epochs, with the shard and the sample in it at each."""
    stops = np.cumsum([len(share) for share in shares])[:-1]
    shards, samples = course.locate(np.concatenate(shares))  # all at once, because neighbours share computations
    return list(zip(shares, np.split(shards, stops), np.split(samples, stops), strict=True))


def _sum(rank: int, located: _Located) -> dict[str, int]:
    _, shards, _ = located
    return {"rank": rank, "samples": len(shards), "shards": len(np.unique(shards))}


def _rows(info: SampleInfo, view: View, located: _Located) -> list[list[int]]:
    """Return [position in the epoch, dataset, shard in it, sample in the shard, sample in the dataset] of samples."""
    positions, shards, samples = (each[:MOST_SAMPLES] for each in located)
    stored = view.stored(shards, samples)
    found = info.fields(positions, shards, stored)
    rows = np.stack((found[:, 1], found[:, 2], shards - view.firsts[found[:, 2]], stored, found[:, 3]), axis=1)
    return [[int(value) for value in row] for row in rows]
