"""The index, and whole shards, as they come from storage: through their checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import xxhash

from mdsx.errors import CorruptError, FormatError, MissingError
from mdsx.format import (
    TABLE_END,
    FrameReader,
    Index,
    Schema,
    ShardEntry,
    ShardView,
    check_shard,
    claimed_raw_size,
    filenames,
    parse_index,
)
from mdsx.storage import Storage

DOWNLOAD_TRIES = 2  # what was damaged on its way is fetched once more


def read_index(storage: Storage) -> Index:
    """The index of the dataset in `storage`; one that was damaged on its way is fetched once more.

    Raises MissingError where there is none, CorruptError.
    """
    for _ in range(DOWNLOAD_TRIES - 1):
        with suppress(FormatError):
            return _read_index(storage)
    return _read_index(storage)


def _read_index(storage: Storage) -> Index:
    file = f"{storage.url.rstrip('/')}/{filenames.INDEX}"
    try:
        data = storage.get(filenames.INDEX).data
    except MissingError as error:
        if "NoSuchBucket" in error.message:
            raise
        hint = "check the URL; a dataset that is still being written, or whose writer died, has no index yet"
        if storage.url.endswith(f"/{filenames.INDEX}"):
            hint = (
                f"give the dataset's URL, without /{filenames.INDEX}: {storage.url.removesuffix(f'/{filenames.INDEX}')}"
            )
        raise MissingError(f"no dataset is here: it has no {filenames.INDEX}", file=storage.url, hint=hint) from error
    return parse_index(data, file=file)


class Hashes(NamedTuple):
    """XXH3-128 of a shard's stored bytes, and of its raw ones: the same where it is not compressed."""

    stored: str
    raw: str


def stream_shard(
    storage: Storage, name: str, write: Callable[[bytes], object], *, size: int, raw_size: int | None, file: str
) -> Hashes:
    """Stream a stored shard of `size` bytes into `write`, raw; with `raw_size` it is compressed, and its frames are
    checked. Nothing is compared: that is the caller's. Raises CorruptError and what storage raises."""
    stored, raw = xxhash.xxh3_128(), xxhash.xxh3_128()
    frames = None if raw_size is None else FrameReader(raw_size, size, file)

    def sink(chunk: bytes) -> None:
        stored.update(chunk)
        if frames is None:
            write(chunk)
        else:
            for piece in frames.feed(chunk):
                raw.update(piece)
                write(piece)

    storage.download(name, sink, size=size)
    if frames is None:
        return Hashes(stored.hexdigest(), stored.hexdigest())
    frames.finish()
    return Hashes(stored.hexdigest(), raw.hexdigest())


def download_shard(storage: Storage, index: Index, shard: int, write: Callable[[bytes], object], *, file: str) -> None:
    """Stream a stored shard through its checks into `write`, raw; CorruptError, at the end, where a hash differs."""
    size, raw_size = int(index.sizes[shard]), int(index.raw_sizes[shard]) if index.compression else None
    hashes = stream_shard(storage, index.name(shard), write, size=size, raw_size=raw_size, file=file)
    for found, expected in zip(hashes, (index.hash(shard), index.raw_hash(shard)), strict=True):
        if found != expected:
            raise hash_mismatch(file, found, expected)


def inspect_shard(
    storage: Storage, key: str, size: int, *, file: str, schema: Schema | None = None, values: bool = True
) -> tuple[ShardView, ShardEntry]:
    """Read and check a whole shard that no index speaks of (see `check_shard` for `schema` and `values`), and make its
    entry. Raises CorruptError, UnsupportedError, and what storage raises."""
    raw_size, raw = None, bytearray()
    if filenames.is_compressed(key):
        raw_size = claimed_raw_size(storage.get(key, start=max(0, size - TABLE_END)).data, file=file)
    hashes = stream_shard(storage, key, raw.extend, size=size, raw_size=raw_size, file=file)
    for problem in check_shard(raw, file=file, schema=schema, values=values):
        raise problem
    view = ShardView.parse(raw, file=file)
    if not view.samples:
        raise CorruptError("it has no sample", file=file)
    return view, ShardEntry(key, view.samples, view.row_key, size, hashes.stored, len(raw), hashes.raw)


def hash_mismatch(file: str, found: str, expected: str) -> CorruptError:
    return CorruptError(
        "the shard's bytes do not match the index",
        file=file,
        place="XXH3-128",
        found=found,
        expected=expected,
        hint="the shard is damaged: `mdsx verify` says where, and `mdsx repair` what can be done",
    )
