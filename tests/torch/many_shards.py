"""Read a dataset of many shards in a process with a low limit of open files, for test_many_shards."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset


def at_random(url: str, cache: str) -> Iterator[list[int]]:
    data = mdsx.Dataset(url, cache=mdsx.Cache(cache, limit="1GB"))
    yield [int(sample["id"]) for sample in data]
    yield data.take(range(len(data))[::-1])["id"].tolist()  # all shards at once
    yield [int(data[number]["id"]) for number in range(len(data))]


def streamed(urls: list[str], cache: str, workers: int) -> list[int]:
    source = urls[0] if len(urls) == 1 else mdsx.Mixture(urls)
    data = StreamingDataset(source, cache=mdsx.Cache(cache, limit="1GB"), seed=3)
    loader = StreamingDataLoader(data, 1000, num_workers=workers, drop_last=False)
    return [number for batch in loader for number in batch["id"].tolist()]


def read_all(files: int, cache: str, urls: list[str]) -> list[int]:
    """Return how many samples were read each time, in a process that may open `files` and has opened half of them.

    One URL is read by a Dataset, and by loaders with 0 and 2 workers; several are read by loaders as a mixture.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    users = [os.open(os.devnull, os.O_RDONLY) for _ in range(files // 2 - len(os.listdir("/proc/self/fd")))]
    found = list(at_random(urls[0], cache)) if len(urls) == 1 else []
    found += [streamed(urls, cache, workers) for workers in (0, 2)]
    assert all(sorted(each) == list(range(len(each))) for each in found), "not each sample once"
    assert users
    return list(map(len, found))
