"""The formats that can be read, and a dataset's index: which format it is of, and what to do if there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mdsx.errors import (
    CorruptError,
    ForbiddenError,
    FormatError,
    MissingError,
    UnsupportedError,
    UsageError,
    shown,
)
from mdsx.format import Index, MdsxFormat, StoredFormat, StoredIndex, filenames, parse_index
from mdsx.mds import MdsFormat
from mdsx.parquet import ParquetFormat
from mdsx.process import REQUESTS, Share
from mdsx.shards.shared_index import get_index
from mdsx.shards.stored import retried
from mdsx.shards.without_index import advice
from mdsx.storage import MissingBucketError, Storage, file_of
from mdsx.storage.cache import CacheDirectory
from mdsx.tars import TarsFormat, is_wids

OURS: Final = MdsxFormat()
FORMATS: tuple[StoredFormat, ...] = (OURS, MdsFormat(), ParquetFormat(), TarsFormat())
"""The formats that can be read. An index that none of them recognizes is parsed as one of ours, which refuses it."""


def index_keys() -> list[str]:
    """Return the keys that the index of a dataset may have, ours first."""
    return list(dict.fromkeys(form.index_key for form in FORMATS))


def format_of(key: str, data: bytes) -> StoredFormat:
    """Return the format of the index `data`, which is stored as `key`: ours if no other format recognizes it."""
    return next((form for form in FORMATS if form.index_key == key and form.recognizes(data)), OURS)


def read_index(storage: Storage, snapshot: str | None = None, *, cache: CacheDirectory | None = None) -> StoredIndex:
    """Return the index of the dataset in `storage`. Raise MissingError if there is none, CorruptError.

    `snapshot`: the fingerprint that the dataset has or had. Raise UsageError if that is no fingerprint, MissingError if
    it never had it. `cache`: where the node's processes share a large index.
    """
    if snapshot is None:
        return retried(lambda: _read_index(storage, cache), FormatError)
    try:
        key = filenames.snapshot(snapshot)
    except (TypeError, ValueError):
        message = "a snapshot is given by its fingerprint"
        raise UsageError(message, file=storage.url, found=shown(snapshot), expected="32 digits of 0-9, a-f") from None
    kept, refused = None, None
    try:
        kept = retried(lambda: _read_snapshot(storage, key, snapshot, cache), FormatError)
    except ForbiddenError as error:  # some storages forbid what is missing: the index may be what was asked for
        refused = error
    index: StoredIndex = read_index(storage, cache=cache) if kept is None else kept
    if index.fingerprint != snapshot:
        if refused is not None:
            raise refused
        names = ", ".join([*snapshots(storage), f"{index.fingerprint} (now)"])
        message = "the dataset has no such snapshot"
        raise MissingError(message, file=storage.url, found=snapshot, expected=f"one of {names}")
    return index


def snapshots(storage: Storage) -> list[str]:
    """Return the fingerprints that the dataset in `storage` had before parts were appended, the first one first; none
    if the storage cannot list."""
    try:  # a dataset only grows, and its index with it
        found = [(entry.size, entry.key) for entry in storage.list(filenames.SNAPSHOTS)]
    except (ForbiddenError, UsageError):
        return []
    return [name for _, key in sorted(found) if (name := filenames.snapshot_fingerprint(key)) is not None]


def cache_folder(index: StoredIndex) -> str:
    """Return the name of the cache's folder for the shards of a dataset: a fingerprint. Appended parts do not change
    it, so that the shards that are in the cache already stay of use."""
    return index.base_fingerprint if isinstance(index, Index) else index.fingerprint


def _read_snapshot(storage: Storage, key: str, fingerprint: str, cache: CacheDirectory | None) -> Index | None:
    data = _get(storage, key, cache)
    if data is None:
        return None
    file = file_of(storage, key)
    index = parse_index(data, file=file)
    if index.fingerprint != fingerprint:
        message = "this is the index of another dataset"
        raise CorruptError(message, file=file, place="fingerprint", found=index.fingerprint, expected=fingerprint)
    return index


def _read_index(storage: Storage, cache: CacheDirectory | None) -> StoredIndex:
    first, *others = index_keys()
    data = _get(storage, first, cache)
    if data is not None and not is_wids(data):  # WebDataset's own index may have this name
        return format_of(first, data).parse_index(data, file=file_of(storage, first))
    for key, found in zip(others, Share(REQUESTS).map(lambda each: _get(storage, each, cache), others), strict=True):
        if found is not None:
            return format_of(key, found).parse_index(found, file=file_of(storage, key))
    if data is not None:
        message = "this is the index of WebDataset's tars: make one that mdsx reads"
        hint = f"`mdsx index tar {storage.url}`"
        raise UnsupportedError(message, file=file_of(storage, first), hint=hint)
    message = f"no dataset is here: it has none of {', '.join(index_keys())}"
    raise MissingError(message, file=storage.url, hint=advice(storage, index_keys()))


def _get(storage: Storage, key: str, cache: CacheDirectory | None) -> bytes | None:
    try:
        return get_index(storage, key, cache)
    except MissingBucketError:
        raise
    except MissingError:  # not kept: its frames would keep the caller's leases
        return None


def refuse_foreign(storage: Storage, message: str, *, hint: str) -> None:
    """Raise UsageError if there is a dataset of another format than ours in `storage`."""
    for form in FORMATS:
        if form is not OURS:
            try:
                data = storage.get(form.index_key).data
            except MissingError:
                continue
            if form.recognizes(data):
                file = file_of(storage, form.index_key)
                raise UsageError(message, file=file, found=form.name, expected=OURS.name, hint=hint)


def check_one_attempt(url: str, folders: Mapping[int, Sequence[str]]) -> None:
    """Raise UsageError if several attempts at a part left files: only the index says which one counts.

    `folders`: those of each part, as `filenames.folders_of_parts` returns them."""
    for attempts in folders.values():
        if len(attempts) > 1:
            raise UsageError(
                "several attempts at this part are here, and no index says which one counts",
                file=f"{url}/{attempts[0]}",
                found=", ".join(attempts[:8]),
                hint="run the job again; or move all but one of them away",
            )
