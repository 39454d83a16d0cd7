"""The supported formats. Find a dataset's index, fetch it, and detect its format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mdsx.base.plugins import Plugin, find_all
from mdsx.base.process import REQUESTS, Share
from mdsx.errors import CorruptError, ForbiddenError, FormatError, MissingError, UnsupportedError, UsageError, shown
from mdsx.format import Index, MdsxFormat, StoredFormat, StoredIndex, filenames, is_name, parse_index
from mdsx.shards.objects import retried
from mdsx.shards.shared_files import get_shared
from mdsx.shards.without_index import advice
from mdsx.storage import MissingBucketError, Storage, file_of, get_or_none
from mdsx.storage.cache import CacheDirectory

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
        return get_shared(storage, key, cache)
    except MissingBucketError:
        raise
    except MissingError:  # do not keep it: its frames would keep the caller's leases
        return None


def refuse_foreign(storage: Storage, message: str, *, hint: str) -> None:
    """Raise UsageError if `storage` has a dataset of another format than our own."""
    for form in all_formats():
        if form is not OURS:
            found = get_or_none(storage, form.index_key)
            if found is not None and form.recognizes(found.data):
                file = file_of(storage, form.index_key)
                raise UsageError(message, file=file, found=form.name, expected=OURS.name, hint=hint)
