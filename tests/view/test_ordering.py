"""The order that the page shows is that of the loaders, on each rank, in each case."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx import UsageError
from mdsx.datasets import excerpt_of
from mdsx.order import DatasetCourse, Order, Position
from mdsx.stream import Cursor, SampleSteps, first_task
from mdsx.view.ordering import MOST_LOCATED, MOST_RANKS, Question, _located, answer


@pytest.mark.parametrize(
    "question",
    [
        Question(seed=5, epoch=1, batch=2, batch_size=4, world_size=3, rank=2),
        Question(seed=5, batch_size=7, world_size=2, lanes=4, shuffle_block=16),
        Question(shuffle=False, batch=3, batch_size=8),
        Question(epoch=3, batch=2, batch_size=25, world_size=2, rank=1, drop_last=False),
    ],
)
def test_a_batch_is_that_of_a_loader(dataset: Path, question: Question) -> None:
    found = answer(mdsx.Dataset(dataset), question)
    shuffle = mdsx.Shuffle(question.lanes, question.shuffle_block) if question.shuffle else False
    loader = mdsx.Loader(
        str(dataset),
        question.batch_size,
        columns=["info"],
        seed=question.seed,
        shuffle=shuffle,
        drop_last=question.drop_last,
        rank=question.rank,
        world_size=question.world_size,
    )
    loader.set_epoch(question.epoch)
    batches = list(loader)
    assert found["batches"] == len(batches)
    assert [row[4] for row in found["samples"]] == [each["id"] for each in batches[question.batch]["info"]]
    assert found["all"] == len(found["samples"])
    firsts = np.cumsum([0, *excerpt_of(mdsx.Dataset(dataset)).shards.index.counts.tolist()])
    assert [firsts[row[2]] + row[3] for row in found["samples"]] == [row[4] for row in found["samples"]]
    assert sum(each["samples"] for each in found["ranks"]) == found["global_batch"]


def test_a_batch_of_a_weighted_mixture_is_that_of_a_loader(dataset: Path) -> None:
    def mixture() -> mdsx.Mixture:
        return mdsx.Mixture([(str(dataset), 1.0), (str(dataset), 3.0)])

    found = answer(mixture(), Question(seed=3, batch=1, batch_size=12))
    loader = mdsx.Loader(mixture(), 12, seed=3, columns=["info"])
    batches = iter(loader)
    next(batches)
    assert [row[4] for row in found["samples"]] == [each["id"] for each in next(batches)["info"]]
    assert {row[1] for row in found["samples"]} == {0, 1}


def test_only_some_of_many_ranks_are_summed_up(dataset: Path) -> None:
    found = answer(mdsx.Dataset(dataset), Question(batch_size=1, world_size=100, rank=99))
    assert [each["rank"] for each in found["ranks"]] == list(range(100 - MOST_RANKS, 100))
    with pytest.raises(UsageError, match="at most"):
        answer(mdsx.Dataset(dataset), Question(batch_size=MOST_LOCATED + 1))


def test_the_ranks_of_ten_billion_samples_are_located_in_seconds() -> None:
    counts = np.full(100_000, 100_000, np.int64)
    course = DatasetCourse(Order(counts, seed=1))
    batching = SampleSteps(course.epoch_samples, 32, 64, True)
    task = first_task(batching, Cursor(0, Position(10**6 * batching.global_batch_size)))
    began = time.process_time()
    found = _located(course, [batching.rank_share([task], course, rank).ticks for rank in range(64)])
    assert [len(shards) for _, shards, _ in found] == [32] * 64
    assert time.process_time() - began < 20
