"""Resume a dataset from the shards of an earlier writer.

A resuming writer keeps all undamaged shards up to the first damaged or missing one. A shard in a journal is kept if its
size and row key are right; any other one is read, checked and hashed. All later shards are removed, so that they cannot
be mistaken for new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from mdsx.base.warn import warn
from mdsx.errors import CorruptError, UsageError
from mdsx.format import (
    HEAD_SIZE,
    HEADER_SIZE,
    Index,
    ShardEntry,
    filenames,
    first_bytes,
    header_row_key,
    parse_index,
)
from mdsx.shards import inspect_shard, refuse_foreign, stream_shard
from mdsx.storage import Entry, Storage, discard, file_of, get_or_none, remove
from mdsx.writer.journal import JOURNALED, Journal
from mdsx.writer.options import WriterOptions

_THREADS = 4
_HEADERS = 32  # shard headers to read at once


def stored_shards(storage: Storage) -> list[tuple[int, Entry]]:
    """Return the number and the entry of every shard in `storage`, compressed or not."""
    found = ((filenames.shard_number(entry.key), entry) for entry in storage.list(filenames.SHARDS))
    return [(number, entry) for number, entry in found if number is not None]


def begin(storage: Storage, journal: Journal, options: WriterOptions, *, resume: bool) -> list[ShardEntry] | Index:
    """Claim the folder for this writer. Return the durable shards, or the index if the dataset is finished.

    Raise UsageError if the folder has a dataset and `resume` is false, or if the options differ.
    """
    message = "there is a dataset of another format already"
    refuse_foreign(storage, message, hint="write to another URL: a writer cannot add to other formats")
    index = _index(storage)
    begun = journal.begun()
    if not resume and index is not None:
        hint = "write to another URL, or replace it with overwrite=True; use resume=True for a job that may run again"
        raise UsageError("there is a dataset already", file=storage.url, hint=hint)
    if not resume and (begun or stored_shards(storage)):
        hint = "pass resume=True to continue it, or remove it"
        raise UsageError("there is an unfinished dataset already", file=storage.url, hint=hint)
    if begun:
        journal.check_options()
    if index is not None:
        _check_index(index, options, storage.url)
        if begun:
            discard(storage, filenames.WRITER_FOLDER, filenames.INDEX)
            journal.claim()  # the writer may have died before its index was durable; this put makes it durable
        journal.remove()
        return index
    if not begun and stored_shards(storage):
        message = "there are shards without a writer's record, so they cannot be resumed"
        raise UsageError(message, file=storage.url, hint="remove them, or write to another URL")
    journal.claim()
    return _recover(storage, journal, options)


def _index(storage: Storage) -> Index | None:
    found = get_or_none(storage, filenames.INDEX)
    return None if found is None else parse_index(found.data, file=file_of(storage, filenames.INDEX))


def _check_index(index: Index, options: WriterOptions, url: str) -> None:
    ours = (options.schema.json.decode(), options.compression)
    theirs = (index.schema.json.decode(), index.compression)
    for place, found, expected in zip(("columns", "compression"), ours, theirs, strict=True):
        if found != expected:
            hint = "resume with the same options, or write to another URL"
            message = "the dataset was written with other options"
            raise UsageError(message, file=url, place=place, found=found, expected=expected, hint=hint)


def _recover(storage: Storage, journal: Journal, options: WriterOptions) -> list[ShardEntry]:
    """Return the shards to keep, and remove all others."""
    discard(storage, filenames.SHARDS, filenames.WRITER_FOLDER, filenames.INDEX)  # never objects of parts
    shards = stored_shards(storage)
    sizes = {entry.key: entry.size for _, entry in shards}
    entries = _undamaged_run(storage, journal, options, sizes)
    for number, entry in shards:
        if number >= len(entries) or entry.key != entries[number].name:
            journal.check_owner()  # another writer may have taken over and written the shard
            remove(storage, entry.key)
    return entries


def load_shard(storage: Storage, entry: ShardEntry) -> memoryview:
    """Return the raw bytes of a kept shard. Raise CorruptError if they have changed."""
    raw = bytearray()
    raw_size = entry.raw_size if filenames.is_compressed(entry.name) else None
    hashes = stream_shard(storage, entry.name, raw.extend, size=entry.size, raw_size=raw_size)
    if hashes.raw != entry.raw_hash:
        raise CorruptError(
            "the shard has changed since it was written",
            file=file_of(storage, entry.name),
            found=hashes.raw,
            expected=entry.raw_hash,
            hint="remove the shard, and resume",
        )
    return memoryview(raw)


def _undamaged_run(
    storage: Storage, journal: Journal, options: WriterOptions, sizes: Mapping[str, int]
) -> list[ShardEntry]:
    """Return the undamaged shards from number 0 up to the first damaged one. Write the journals that they lack."""
    length = 0
    while options.shard_key(length) in sizes:
        length += 1
    entries: list[ShardEntry] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for found in pool.map(journal.entries, range(length // JOURNALED)):
            if found is None or any(sizes[entry.name] != entry.size for entry in found):
                break
            entries += found
        with ThreadPoolExecutor(_HEADERS) as headers:
            for number, other in enumerate(headers.map(lambda entry: _is_other_shard(storage, entry), entries)):
                if other:
                    message = "another shard than the writer's is stored here; this and all later shards are rewritten"
                    warn(f"{file_of(storage, entries[number].name)}: {message}", seen_by="process")
                    length = number
                    del entries[number:]
                    break
        journal.drop(len(entries) // JOURNALED)
        keys = [options.shard_key(number) for number in range(len(entries), length)]
        for entry in pool.map(lambda key: _inspect(storage, options, key, sizes[key]), keys):
            if isinstance(entry, CorruptError):
                warn(f"{entry}; this and all later shards are rewritten", seen_by="process")
                break
            entries.append(entry)
            if len(entries) % JOURNALED == 0:
                journal.write(len(entries) // JOURNALED - 1, entries[-JOURNALED:])
    return entries


def _is_other_shard(storage: Storage, entry: ShardEntry) -> bool:
    """Return whether a shard's header has another row key than the journal."""
    compressed = filenames.is_compressed(entry.name)
    head = storage.get(entry.name, stop=min(entry.size, HEAD_SIZE if compressed else HEADER_SIZE)).data
    try:
        found = header_row_key(first_bytes(head) if compressed else head)
    except CorruptError:
        found = None
    return found != entry.row_key


def _inspect(storage: Storage, options: WriterOptions, key: str, size: int) -> ShardEntry | CorruptError:
    """Read and check a shard. Return the error if it is damaged."""
    try:
        return inspect_shard(storage, key, size, schema=options.schema, values=False)[1]
    except CorruptError as error:
        return error
