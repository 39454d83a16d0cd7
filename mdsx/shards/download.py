"""Whole shards from storage, through their checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from mdsx.errors import CorruptError, FormatError
from mdsx.format import (
    TABLE_END,
    Hashes,
    RawStream,
    Schema,
    ShardEntry,
    ShardView,
    StoredIndex,
    check_shard,
    claimed_raw_size,
    filenames,
)
from mdsx.storage import Storage

DOWNLOAD_TRIES = 2  # what is damaged in transfer is fetched again, once

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def retried(fetch: Callable[[], T], damage: type[FormatError] = CorruptError) -> T:
    """Return what `fetch` does; call it again if it raises `damage`."""
    for _ in range(DOWNLOAD_TRIES - 1):
        with suppress(damage):
            return fetch()
    return fetch()


class _Checks(Protocol[T_co]):
    def feed(self, chunk: bytes) -> Iterable[object]: ...
    def finish(self) -> T_co: ...


def download_shard(
    storage: Storage,
    index: StoredIndex,
    shard: int,
    write: Callable[[bytes], object],
    *,
    file: str,
    name: str | None = None,
) -> None:
    """Write the raw bytes of a shard with `write`. Raise CorruptError, at the end, if they are not the right ones.

    `name` is the shard's key in `storage`, if it is not the index's own name for it.
    """
    _pass(
        storage,
        index.name(shard) if name is None else name,
        index.receive(shard, file=file),
        write,
        size=int(index.sizes[shard]),
    )


def stream_shard(
    storage: Storage, name: str, write: Callable[[bytes], object], *, size: int, raw_size: int | None, file: str
) -> Hashes:
    """Write the raw bytes of a shard of `size` stored bytes with `write`; with `raw_size` it is compressed.

    Return its hashes, which the caller compares. Raise CorruptError for a damaged frame.
    """
    return _pass(storage, name, RawStream(size=size, raw_size=raw_size, file=file), write, size=size)


def _pass(storage: Storage, name: str, stream: _Checks[T_co], write: Callable[[bytes], object], *, size: int) -> T_co:
    def sink(chunk: bytes) -> None:
        for piece in stream.feed(chunk):
            write(piece)  # type: ignore[arg-type]

    storage.download(name, sink, size=size)
    return stream.finish()


def inspect_shard(
    storage: Storage, key: str, size: int, *, file: str, schema: Schema | None = None, values: bool = True
) -> tuple[ShardView, ShardEntry]:
    """Read and check a whole shard of ours that no index names (see `check_shard` for `schema` and `values`).

    Return it, and its entry in an index. Raise CorruptError or UnsupportedError.
    """
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
