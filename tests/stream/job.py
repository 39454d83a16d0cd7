"""One rank of a job that reads a dataset in order through a cache, without PyTorch; the tests run several at once.

job.py URL CACHE LIMIT RANK WORLD_SIZE: checks the content of its samples, then prints their numbers.
"""

from __future__ import annotations

import json
import sys
import warnings

from mdsx.order import DatasetCourse, Order
from mdsx.shards import Excerpt, Shards, View
from mdsx.storage.cache import Cache
from mdsx.stream import Batching, RankReader


def text(url: str, number: int) -> str:
    """Return what is written at place `number` of the dataset `url`."""
    return f"{url} {number} " * 20


def main() -> None:
    url, cache, limit, rank, world = sys.argv[1:]
    warnings.simplefilter("ignore")  # the cache is small on purpose
    shards = Shards(url, cache=Cache(cache, int(limit)))
    batching = Batching(shards.index.samples, 8, int(world), drop_last=False)
    course = DatasetCourse(Order(shards.index.counts, seed=3))
    reader = RankReader(View([Excerpt.whole(shards)]), course, batching, int(rank), processes=int(world))
    seen = []
    for batch in (each for run in reader.runs(batching.tasks(0, 0)) for each in reader.read(run)):
        numbers = batch.columns["id"].tolist()
        assert batch.columns["text"] == [text(url, number) for number in numbers], "wrong bytes"
        seen += numbers
    reader.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
