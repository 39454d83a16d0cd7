"""Verify a whole dataset, local or remote: every byte of every shard against every checksum and rule there is.

A shard is downloaded, decompressed and checked in memory; `threads` of them at once, no more. Damage that has a place
in a shard is told by sample and column; only what no check places is told by the hash of the whole. A shard that is not
there or cannot be read is damage as well.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import xxhash

from mdsx.errors import CorruptError, MdsxError
from mdsx.format import FrameReader, Index, ShardEntry, ShardView, check_shard
from mdsx.shards import read_index
from mdsx.storage import Storage, open_storage


@dataclass(frozen=True, slots=True)
class Verified:
    """How far a verification is. `size` counts the bytes of stored objects."""

    shards: int
    samples: int
    size: int
    of_shards: int
    of_size: int


def verify(
    url: str | os.PathLike[str], *, threads: int = 4, watch: Callable[[Verified], object] = lambda verified: None
) -> Iterator[MdsxError]:
    """Every damage of the dataset at `url`, shard by shard in order. `watch` is told after each shard.

    Raises MissingError where there is no dataset; an index that is damaged is the only damage found.
    """
    storage = open_storage(url)
    try:
        index = read_index(storage)
    except CorruptError as error:
        yield error
        return
    of_size, samples, size = int(index.sizes.sum()), 0, 0
    for shard, damages in enumerate(_in_order(storage, index, threads)):
        yield from damages
        samples, size = samples + int(index.counts[shard]), size + int(index.sizes[shard])
        watch(Verified(shard + 1, samples, size, len(index.counts), of_size))


def _in_order(storage: Storage, index: Index, threads: int) -> Iterator[list[MdsxError]]:
    """The damages of each shard; as many shards as threads are at work, counting one that waits to be taken."""
    running: deque[Future[list[MdsxError]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="mdsx-verify") as pool:
        try:
            for shard in range(len(index.counts)):
                if len(running) == threads:
                    yield running.popleft().result()
                running.append(pool.submit(_damages, storage, index, shard))
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _damages(storage: Storage, index: Index, shard: int) -> list[MdsxError]:
    entry = index.entry(shard)
    file = f"{storage.url.rstrip('/')}/{entry.name}"
    try:
        raw, stored_hash = _download(storage, index, entry, file)
        found: list[MdsxError] = [*check_shard(raw, file=file, schema=index.schema)]
        if not found and (difference := _difference(raw, stored_hash, entry, file)):
            found = [difference]
    except MdsxError as error:
        return [error]
    return found


def _download(storage: Storage, index: Index, entry: ShardEntry, file: str) -> tuple[bytearray, str]:
    """The raw bytes of a shard, and the hash of its stored ones."""
    raw, stored = bytearray(), xxhash.xxh3_128()
    frames = FrameReader(entry.raw_size, entry.size, file) if index.compression else None

    def sink(chunk: bytes) -> None:
        stored.update(chunk)
        for piece in frames.feed(chunk) if frames else (chunk,):
            raw.extend(piece)

    storage.download(entry.name, sink, size=entry.size)
    if frames:
        frames.finish()
    return raw, stored.hexdigest()


def _difference(raw: bytearray, stored_hash: str, entry: ShardEntry, file: str) -> CorruptError | None:
    """Why a shard that is sound in itself is not the one that the index names; None if it is."""
    facts = (
        ("number of samples", ShardView.parse(raw, file=file).samples, entry.samples),
        ("uncompressed size", len(raw), entry.raw_size),
        ("XXH3-128 of the uncompressed shard", xxhash.xxh3_128_hexdigest(raw), entry.raw_hash),
        ("XXH3-128", stored_hash, entry.hash),
    )
    for place, found, expected in facts:
        if found != expected:
            message = "is not the shard that the index names"
            return CorruptError(message, file=file, place=place, found=found, expected=expected)
    return None
