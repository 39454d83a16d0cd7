"""The index, and whole shards, as they come from storage: through their checks."""

from __future__ import annotations

from collections.abc import Callable

import xxhash

from mdsx.errors import CorruptError, MissingError
from mdsx.format import FrameReader, Index, parse_index
from mdsx.storage import Storage

INDEX_KEY = "index.json"


def read_index(storage: Storage) -> Index:
    """The index of the dataset in `storage`. Raises MissingError where there is none, CorruptError."""
    file = f"{storage.url.rstrip('/')}/{INDEX_KEY}"
    try:
        data = storage.get(INDEX_KEY).data
    except MissingError as error:
        raise MissingError(
            "no dataset is here: it has no index.json",
            file=storage.url,
            hint="check the URL; a dataset that is still being written, or whose writer died, has no index yet",
        ) from error
    return parse_index(data, file=file)


def download_shard(storage: Storage, index: Index, shard: int, write: Callable[[bytes], object], *, file: str) -> None:
    """Stream a stored shard through its checks into `write`, raw; CorruptError, at the end, where a hash differs."""
    name, size = index.name(shard), int(index.sizes[shard])
    stored, raw = xxhash.xxh3_128(), xxhash.xxh3_128()
    if index.compression is None:

        def sink(chunk: bytes) -> None:
            stored.update(chunk)
            write(chunk)

        storage.download(name, sink, size=size)
    else:
        frames = FrameReader(raw_size=int(index.raw_sizes[shard]), size=size, file=file)

        def sink(chunk: bytes) -> None:
            stored.update(chunk)
            for piece in frames.feed(chunk):
                raw.update(piece)
                write(piece)

        storage.download(name, sink, size=size)
        frames.finish()
        if raw.hexdigest() != index.raw_hash(shard):
            raise hash_mismatch(file, raw.hexdigest(), index.raw_hash(shard))
    if stored.hexdigest() != index.hash(shard):
        raise hash_mismatch(file, stored.hexdigest(), index.hash(shard))


def hash_mismatch(file: str, found: str, expected: str) -> CorruptError:
    return CorruptError(
        "the shard's bytes do not match the index",
        file=file,
        place="XXH3-128",
        found=found,
        expected=expected,
        hint="the shard is damaged: run `mdsx verify`, and write or copy it anew",
    )
