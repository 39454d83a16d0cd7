"""Two unrelated jobs of six processes each share a cache of five shards: right data, never a byte above the limit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mdsx
from tests.storage.cache.watch import Watch
from tests.stream.job import text

N = 600
TIMEOUT = 120


def test_twelve_processes_of_two_jobs_on_one_cache_of_five_shards(s3_url: str, tmp_path: Path) -> None:
    urls = [f"{s3_url}/one", f"{s3_url}/two"]
    largest = 0
    for url in urls:
        with mdsx.Writer(url, {"id": "int64", "text": "str"}, shard_size="16KiB") as out:
            out.write_batch({"id": range(N), "text": [text(url, number) for number in range(N)]})
        index = mdsx.Dataset(url, cache=tmp_path / "other").shards.index
        assert len(index.counts) > 15
        largest = max(largest, int(index.raw_sizes.max()))
    limit = 5 * largest
    with Watch(tmp_path / "cache") as watch:
        jobs = [
            (
                url,
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.stream.job",
                        url,
                        str(tmp_path / "cache"),
                        str(limit),
                        str(rank),
                        "6",
                    ],
                    stdout=subprocess.PIPE,
                    text=True,
                ),
            )
            for rank in range(6)
            for url in urls
        ]
        results = [(url, process.communicate(timeout=TIMEOUT)[0], process.returncode) for url, process in jobs]
    assert all(status == 0 for _, _, status in results)
    for url in urls:
        read = Counter(number for of, numbers, _ in results if of == url for number in json.loads(numbers))
        assert read == Counter(range(N))
    assert watch.looks > 20
    assert largest < watch.highest <= limit
