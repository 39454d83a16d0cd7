"""One rank of a job that reads a dataset in order through a cache; the tests run several at once."""

from __future__ import annotations

import warnings
from pathlib import Path

from mdsx.order import DatasetCourse, Order
from mdsx.shards import DatasetSlice, Shards, View
from mdsx.storage.cache import Cache
from mdsx.stream import Cursor, RankReader, SampleSteps


def text(url: str, number: int) -> str:
    """Return what is written at place `number` of the dataset `url`."""
    return f"{url} {number} " * 20


def read(url: str, cache: Path, limit: int, rank: int, world: int) -> list[int]:
    """Check the content of the rank's samples, and return their numbers."""
    warnings.simplefilter("ignore")  # the cache is small on purpose
    shards = Shards(url, cache=Cache(cache, limit))
    batching = SampleSteps(shards.index.samples, 8, world, drop_last=False)
    course = DatasetCourse(Order(shards.index.counts, seed=3))
    reader = RankReader(View([DatasetSlice.whole(shards)]), course, batching, rank, processes=world)
    seen: list[int] = []
    for batch in (each for run in reader.chunks(batching.tasks(Cursor())) for each in reader.read(run)):
        numbers = batch.columns["id"].tolist()
        assert batch.columns["text"] == [text(url, number) for number in numbers], "wrong bytes"
        seen += numbers
    reader.close()
    return seen
