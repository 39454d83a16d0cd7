"""Find the shards that an earlier writer left, and those that a new writer can keep.

It keeps the longest run of sound shards from number 0. Shards in journals are kept without reading them whole, if their
sizes and row keys are right; the others are read, checked and hashed. All later shards are removed, so that they cannot
be mistaken for new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from mdsx.errors import CorruptError, MissingError, UsageError
from mdsx.format import HEAD_SIZE, HEADER_SIZE, Index, ShardEntry, filenames, first_bytes, header_row_key, parse_index
from mdsx.shards import inspect_shard, stream_shard
from mdsx.storage import Entry, Storage
from mdsx.warn import warn
from mdsx.writer.folder import JOURNALED, Folder, Options

_THREADS = 4
_HEADERS = 32  # headers of shards that are read at once


def stored_shards(storage: Storage) -> list[tuple[int, Entry]]:
    """Return the number and the entry of every shard in `storage`, compressed or not."""
    found = ((filenames.shard_number(entry.key), entry) for entry in storage.list(filenames.SHARDS))
    return [(number, entry) for number, entry in found if number is not None]


def begin(storage: Storage, folder: Folder, options: Options, *, resume: bool) -> list[ShardEntry] | Index:
    """Claim `folder` for this writer. Return the durable shards, or the index if the dataset is finished.

    Raise UsageError if something is there without `resume`, or if the options differ.
    """
    index = _index(storage)
    begun = folder.begun()
    if not resume and index is not None:
        raise UsageError("there is a dataset already", file=storage.url, hint="write to another place, or remove it")
    if not resume and (begun or stored_shards(storage)):
        hint = "pass resume=True to continue it, or remove it"
        raise UsageError("there is an unfinished dataset already", file=storage.url, hint=hint)
    if begun:
        folder.check_options()
    if index is not None:
        _check_index(index, options, storage.url)
        if begun:
            folder.claim()  # that writer may have died before its index was durable; this put makes it durable
        folder.remove()
        return index
    if not begun and stored_shards(storage):
        message = "there are shards, but no record of their writer"
        raise UsageError(message, file=storage.url, hint="remove them, or write to another place")
    folder.claim()
    return _recover(storage, folder, options)


def _index(storage: Storage) -> Index | None:
    try:
        return parse_index(storage.get(filenames.INDEX).data, file=f"{storage.url}/{filenames.INDEX}")
    except MissingError:
        return None


def _check_index(index: Index, options: Options, url: str) -> None:
    ours = (options.schema.json.decode(), options.compression)
    theirs = (index.schema.json.decode(), index.compression)
    for place, found, expected in zip(("columns", "compression"), ours, theirs, strict=True):
        if found != expected:
            hint = "resume with those options, or write elsewhere"
            message = "the dataset was written with other options"
            raise UsageError(message, file=url, place=place, found=found, expected=expected, hint=hint)


def _recover(storage: Storage, folder: Folder, options: Options) -> list[ShardEntry]:
    """Return the shards to keep, and remove all others."""
    for prefix in (filenames.SHARDS, filenames.WRITER_FOLDER, filenames.INDEX):  # never those of parts
        storage.discard_unfinished(prefix)
    shards = stored_shards(storage)
    sizes = {entry.key: entry.size for _, entry in shards}
    entries = _sound_run(storage, folder, options, sizes)
    for number, entry in shards:
        if number >= len(entries) or entry.key != entries[number].name:
            storage.delete(entry.key)
    return entries


def load_shard(storage: Storage, entry: ShardEntry) -> memoryview:
    """Return the raw bytes of a kept shard. Raise CorruptError if they have changed."""
    file, raw = f"{storage.url}/{entry.name}", bytearray()
    raw_size = entry.raw_size if filenames.is_compressed(entry.name) else None
    hashes = stream_shard(storage, entry.name, raw.extend, size=entry.size, raw_size=raw_size, file=file)
    if hashes.raw != entry.raw_hash:
        raise CorruptError(
            "the shard is not what was written",
            file=file,
            found=hashes.raw,
            expected=entry.raw_hash,
            hint="remove it, and resume",
        )
    return memoryview(raw)


def _sound_run(storage: Storage, folder: Folder, options: Options, sizes: Mapping[str, int]) -> list[ShardEntry]:
    """Return the longest run of sound shards from number 0. Write the journals that it lacks."""
    length = 0
    while options.shard_key(length) in sizes:
        length += 1
    entries: list[ShardEntry] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for journal in pool.map(folder.journal, range(length // JOURNALED)):
            if journal is None or any(sizes[entry.name] != entry.size for entry in journal):
                break
            entries += journal
        with ThreadPoolExecutor(_HEADERS) as headers:
            for number, foreign in enumerate(headers.map(lambda entry: _is_foreign(storage, entry), entries)):
                if foreign:
                    message = "this is not the shard that was written here; it and all later ones are written again"
                    warn(f"{storage.url}/{entries[number].name}: {message}", seen_by="process")
                    length = number
                    del entries[number:]
                    break
        folder.drop_journals(len(entries) // JOURNALED)
        keys = [options.shard_key(number) for number in range(len(entries), length)]
        for entry in pool.map(lambda key: _inspect(storage, options, key, sizes[key]), keys):
            if isinstance(entry, CorruptError):
                warn(f"{entry}; this shard and all later ones are written again", seen_by="process")
                break
            entries.append(entry)
            if len(entries) % JOURNALED == 0:
                folder.write_journal(len(entries) // JOURNALED - 1, entries[-JOURNALED:])
    return entries


def _is_foreign(storage: Storage, entry: ShardEntry) -> bool:
    """Return whether the header of a shard has another row key than its journal says."""
    compressed = filenames.is_compressed(entry.name)
    head = storage.get(entry.name, stop=min(entry.size, HEAD_SIZE if compressed else HEADER_SIZE)).data
    try:
        found = header_row_key(first_bytes(head) if compressed else head)
    except CorruptError:
        found = None
    return found != entry.row_key


def _inspect(storage: Storage, options: Options, key: str, size: int) -> ShardEntry | CorruptError:
    """Read and check a shard. Return the error if it is damaged."""
    try:
        return inspect_shard(storage, key, size, file=f"{storage.url}/{key}", schema=options.schema, values=False)[1]
    except CorruptError as error:
        return error
