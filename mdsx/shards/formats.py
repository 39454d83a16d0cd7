"""The supported formats. Find a dataset's index, fetch it, and detect its format.

Many processes open an index at once, so a large one is downloaded once per node, into the cache.

Rules:
- A small index is read with one request, and never cached.
- A large index is a file of the cache like a shard: counted, leased while it is read, and evicted. Its name is made
  from the URL, the ETag and the size, so a replaced index is another file.
- Each process gets the first piece from storage. So it knows the ETag, and may use the file in the cache. It compares
  the piece with the file, and verifies the checksum of the whole index, even if it made the file itself. A wrong file
  is dropped.
- Each process downloads an index itself if sharing is not safe: without an ETag or a checksum in the index, if the
  index takes much of the cache's limit, or if another process does not finish it in time.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import xxhash

from mdsx.base.plugins import Plugin, find_all
from mdsx.base.process import REQUESTS, Share
from mdsx.errors import (
    ChangedError,
    CorruptError,
    ForbiddenError,
    FormatError,
    MissingError,
    TruncatedError,
    UnsupportedError,
    UsageError,
    shown,
)
from mdsx.format import (
    Index,
    MdsxFormat,
    StoredFormat,
    StoredIndex,
    begins_sealed,
    filenames,
    is_name,
    is_sealed,
    parse_index,
)
from mdsx.shards.objects import retried
from mdsx.shards.opened import make_room
from mdsx.shards.without_index import advice
from mdsx.storage import MissingBucketError, Piece, Storage, file_of
from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict, Write

_FIRST = 2**20  # bytes of the first request: a larger index is shared
_SHARE = 8  # the index may take at most an eighth of the cache's limit
_PATIENCE = 60.0  # seconds to wait for a process that downloads the index
_PAUSE = 0.02

OURS: Final = MdsxFormat()


def all_formats() -> tuple[StoredFormat, ...]:
    """Return the formats of mdsx. Add a new format here. Formats other than our own are imported only when an index is
    not in our format."""
    from mdsx.foreign.mds import MdsFormat
    from mdsx.foreign.parquet import ParquetFormat
    from mdsx.foreign.tars import TarsFormat
    from mdsx.foreign.tokens import TokensFormat

    return (OURS, MdsFormat(), ParquetFormat(), TarsFormat(), TokensFormat())


def installed_formats() -> list[StoredFormat]:
    """Return the formats of other packages, for folders without an index of mdsx's formats. Raise UsageError for a
    package whose format cannot be used."""
    return [_checked(plugin) for plugin in find_all("mdsx.formats")]


def _checked(plugin: Plugin) -> StoredFormat:
    try:
        form: StoredFormat = plugin.value() if isinstance(plugin.value, type) else plugin.value
        if not is_name(form.index_key) or form.name in {each.name for each in all_formats()}:
            raise ValueError(f"its name is {form.name!r}, and its index_key {form.index_key!r}")
    except Exception as error:
        message = f"the stored format of the package {plugin.distribution} cannot be used: {error}"
        hint = f"upgrade or uninstall {plugin.distribution}"
        raise UsageError(message, place="entry points mdsx.formats", found=shown(plugin.value), hint=hint) from error
    return form


def index_keys(others: Iterable[StoredFormat] = ()) -> list[str]:
    """Return the keys that a dataset's index may have: those of mdsx's formats, our own first, then those of
    `others`."""
    return list(dict.fromkeys(form.index_key for form in (*all_formats(), *others)))


def format_of(key: str, data: bytes) -> StoredFormat:
    """Return the format of the index `data`, stored as `key`: our own if no other format recognizes it."""
    for formats in (all_formats, installed_formats):
        for form in formats():
            if form.index_key == key and form.recognizes(data):
                return form
    return OURS


def read_index(storage: Storage, snapshot: str | None = None, *, cache: CacheDirectory | None = None) -> StoredIndex:
    """Return the index of the dataset in `storage`. Raise MissingError or CorruptError.

    `snapshot`: a fingerprint that the dataset has or had. Raise UsageError if it is not a fingerprint, MissingError if
    the dataset never had it. `cache`: where the node's processes share a large index.
    """
    if snapshot is None:
        return retried(lambda: _read_index(storage, cache), FormatError)
    try:
        key = filenames.snapshot(snapshot)
    except (TypeError, ValueError):
        message = "a snapshot must be given by its fingerprint"
        raise UsageError(message, file=storage.url, found=shown(snapshot), expected="32 digits of 0-9, a-f") from None
    kept, refused = None, None
    try:
        kept = retried(lambda: _read_snapshot(storage, key, snapshot, cache), FormatError)
    except ForbiddenError as error:  # some storages return 403 for missing objects: the index may be what was asked for
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
    """Return the fingerprints that the dataset in `storage` had before each append, oldest first; none if the storage
    cannot list."""
    try:  # a dataset only grows, and its index with it
        found = [(entry.size, entry.key) for entry in storage.list(filenames.SNAPSHOTS)]
    except (ForbiddenError, UsageError):
        return []
    return [name for _, key in sorted(found) if (name := filenames.snapshot_fingerprint(key)) is not None]


def cache_folder(index: StoredIndex) -> str:
    """Return the name of the cache's folder for a dataset's shards: a fingerprint that appends do not change, so that
    cached shards stay valid."""
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
    data = _get(storage, OURS.index_key, cache)
    if data is not None and OURS.recognizes(data):
        return OURS.parse_index(data, file=file_of(storage, OURS.index_key))
    from mdsx.foreign.tars import is_wids

    keys = index_keys()
    if data is not None and not is_wids(data):  # WebDataset's own index may have this name
        return format_of(keys[0], data).parse_index(data, file=file_of(storage, keys[0]))
    if (index := _first_index(storage, keys[1:], cache)) is not None:
        return index
    installed = installed_formats()
    more = [key for key in index_keys(installed) if key not in keys]
    if more and (index := _first_index(storage, more, cache)) is not None:
        return index
    if data is not None:
        message = "this is an index of WebDataset: make one that mdsx can read"
        hint = f"`mdsx index tar {storage.url}`"
        raise UnsupportedError(message, file=file_of(storage, keys[0]), hint=hint)
    message = f"no dataset is here: it has none of {', '.join([*keys, *more])}"
    raise MissingError(message, file=storage.url, hint=advice(storage, [*all_formats(), *installed]))


def _first_index(storage: Storage, keys: Sequence[str], cache: CacheDirectory | None) -> StoredIndex | None:
    """Return the index that is stored under one of the keys."""
    for key, data in zip(keys, Share(REQUESTS).map(lambda each: _get(storage, each, cache), keys), strict=True):
        if data is not None:
            return format_of(key, data).parse_index(data, file=file_of(storage, key))
    return None


def _get(storage: Storage, key: str, cache: CacheDirectory | None) -> bytes | None:
    try:
        return get_index(storage, key, cache)
    except MissingBucketError:
        raise
    except MissingError:  # do not keep it: its frames would keep the caller's leases
        return None


def refuse_foreign(storage: Storage, message: str, *, hint: str) -> None:
    """Raise UsageError if `storage` has a dataset of another format than our own."""
    for form in all_formats():
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

    `folders`: the folders of each part, as returned by `filenames.folders_of_parts`."""
    for attempts in folders.values():
        if len(attempts) > 1:
            raise UsageError(
                "there are several attempts at this part, and no index says which one counts",
                file=f"{url}/{attempts[0]}",
                found=", ".join(attempts[:8]),
                hint="run the job again; or move all but one of them away",
            )


# --- the bytes of an index


def get_index(storage: Storage, key: str, cache: CacheDirectory | None) -> bytes:
    """Return the bytes of an index, the object `key`. A large one in remote storage goes through `cache` if it has
    room.

    Raise MissingError if it does not exist. The bytes are not verified.
    """
    if cache is not None and storage.path(key) is None:
        # An empty object has no first piece. An index that was replaced meanwhile, or is damaged, is read directly.
        with suppress(TruncatedError, ChangedError, CorruptError):
            first = storage.get(key, stop=_FIRST)
            if len(first.data) == first.total:
                return first.data
            if _can_be_shared(first, cache) and (found := _shared(storage, key, cache, first)) is not None:
                return found
    return storage.get(key).data


def _can_be_shared(first: Piece, cache: CacheDirectory) -> bool:
    named = first.etag.strip('"') != ""  # some servers give all objects the same, empty one
    return named and begins_sealed(first.data) and _SHARE * first.total <= cache.recent_limit


def _shared(storage: Storage, key: str, cache: CacheDirectory, first: Piece) -> bytes | None:
    """Return the verified bytes from the cache; None if it has no room, or another process takes too long."""

    def fill(write: Write) -> None:
        data = storage.get(key, etag=first.etag).data
        if not _is_right(data, first):
            raise CorruptError("the index is damaged", file=file_of(storage, key))
        write(data)

    place, version = f"{storage.url}\n{key}", f"{first.etag}\n{first.total}"
    name = CacheKey(_hash(place), _hash(version), first.total, kind="index")
    for _ in range(2):
        found = _fetched(cache, name, fill, storage.url)
        if isinstance(found, Verdict):
            return None
        data = bytes(found)
        if _is_right(data, first):
            return data
        cache.discard(name)
    return None


def _fetched(cache: CacheDirectory, name: CacheKey, fill: Callable[[Write], None], url: str) -> mmap.mmap | Verdict:
    """Return the file, which this process makes unless another one does; or the reason why it is not in the cache."""
    make_room(leased=True)
    deadline = time.monotonic() + _PATIENCE
    while (found := cache.fetch(name, fill, source=url)) is Verdict.BUSY and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        while cache.is_being_made(name) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    return found


def _is_right(data: bytes, first: Piece) -> bool:
    return len(data) == first.total and data.startswith(first.data) and is_sealed(data)


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode(errors="surrogateescape"))
