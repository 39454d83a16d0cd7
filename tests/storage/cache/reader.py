"""A process that reads shards through a cache, as a job does. The tests run several at once."""

from __future__ import annotations

from pathlib import Path

from mdsx.storage.cache import CacheDirectory, Verdict
from tests.storage.cache.reading import content, fetch


def read(directory: Path, limit: int, job: str, shards: int, rounds: int, seed: int) -> None:
    """Check the bytes of every shard for which there is room."""
    cache = CacheDirectory(directory, limit)
    held = None  # one lease is held while the next shard is fetched, as a reader of several lanes does
    for step in range(rounds):
        for place in range(shards):
            number = (place * 7 + step * 3 + seed * 5) % shards
            mapped = fetch(cache, job, number)
            if isinstance(mapped, Verdict):
                continue  # the stream reads by range then
            assert mapped[:] == content(job, number), "wrong bytes"
            held = mapped
    del held
