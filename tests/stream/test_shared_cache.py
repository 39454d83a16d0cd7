"""Two unrelated jobs of six processes each share a cache of five shards: right data, never a byte above the limit."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from tests.fork_server import call_all
from tests.storage.cache.watch import Watch
from tests.stream.job import read, text

N = 600


@pytest.mark.slow
def test_two_jobs_of_six_processes_share_a_small_cache(s3_url: str, tmp_path: Path) -> None:
    urls = [f"{s3_url}/one", f"{s3_url}/two"]
    largest = 0
    for url in urls:
        with mdsx.Writer(url, {"id": "int64", "text": "str"}, shard_size="16KiB") as out:
            out.write_batch({"id": range(N), "text": [text(url, number) for number in range(N)]})
        index = excerpt_of(mdsx.Dataset(url, cache=tmp_path / "other")).shards.index
        assert len(index.counts) > 15
        largest = max(largest, int(index.raw_sizes.max()))
    limit = 5 * largest
    with Watch(tmp_path / "cache") as watch:
        ranks = [(url, tmp_path / "cache", limit, rank, 6) for rank in range(6) for url in urls]
        results = call_all(read, ranks)
    for url in urls:
        numbers = Counter(itertools.chain(*(found for rank, found in zip(ranks, results, strict=True) if url in rank)))
        assert numbers == Counter(range(N))
    assert watch.looks > 20
    assert largest < watch.highest <= limit
