"""List the shards of a dataset, even without its index, and prove an index that was rebuilt from them.

The index names the shards. If it is damaged or missing, the indexes of the parts name them. Without those, file names
do: shards are then ordered by part number and shard number. A file that an earlier repair wrote
(`repaired.shard.00003.mdsx`) may replace the shard that it was made from. If parts were appended, as a snapshot of the
index shows, the dataset's own shards precede them, and part numbers may have gaps.

The checksum of a damaged index can prove a rebuilt one: if the index built from the shards has the same checksum, it is
the original, byte for byte. If one digit of the checksum was damaged, the others suffice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, NamedTuple

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError, ForbiddenError, FormatError, MdsxError, MissingError, UsageError
from mdsx.format import Index, Schema, ShardEntry, build_index, filenames, parse_index
from mdsx.shards import read_index, refuse_foreign, retried, snapshots
from mdsx.storage import Entry, Storage, file_of
from mdsx.writer import check_one_attempt, check_one_run

_SHOWN = 20  # names in an error
_MOST_GAPS = 1000


Schemas = dict[tuple[Schema, int], str]
"""(Schema, offset of the rows) -> a file that has them."""


class Place(NamedTuple):
    """Where a shard is: shard number `shard` of the index `source`, with its `entry` there. If no index names it, only
    its candidate `files` are known, the best first (none if the shard is missing)."""

    name: str
    entry: ShardEntry | None = None
    source: Index | None = None
    shard: int = 0
    files: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """The shards of a dataset. `state`, `data` (None if missing) and `parsed` (only if undamaged) describe the index.
    `metadata`: the index's, or the parts' if they agree, or none. `lengths`: the columns by which the index, or
    the last snapshot, has sums of lengths. `schemas`: those in indexes."""

    state: Literal["undamaged", "damaged", "missing"]
    places: Sequence[Place]
    compression: str | None
    data: bytes | None = None
    parsed: Index | None = None
    error: MdsxError | None = None
    metadata: list[dict[str, Any]] = field(default_factory=list)
    lengths: Collection[str] = ()
    schemas: Schemas = field(default_factory=dict)


def read_catalog(storage: Storage) -> Catalog:
    """Return the shards of the dataset in `storage`. Raise MissingError if there are none, UsageError for an unfinished
    dataset or one of another format, or if names contradict each other."""
    hint = "run `mdsx verify` to list the damaged files, and copy them again from their origin"
    refuse_foreign(storage, "only datasets of mdsx's own format can be repaired", hint=hint)
    data: bytes | None = None

    def read() -> Index:
        nonlocal data
        data = storage.get(filenames.INDEX).data
        return parse_index(data, file=file_of(storage, filenames.INDEX))

    try:
        index = retried(read, FormatError)
    except MissingError:
        return _by_names(storage, None, None)
    except FormatError as error:
        return _by_names(storage, data, error)
    schemas = {(index.schema, index.rows_offset): filenames.INDEX}
    return Catalog(
        "undamaged", _Named(index), index.compression, data, index, None, [index.metadata], index.lengths, schemas
    )


def unnamed(storage: Storage) -> list[str]:
    """Return files that look like shards but are not in the index. Nothing reads them.

    Examples are damaged shards that a repair replaced, and the shards of a part that was added after the merge. Return
    an empty list if the index is damaged, or if the storage cannot list.
    """
    try:
        index = read_index(storage)
        names = {index.name(shard) for shard in range(len(index.counts))}
        keys = (entry.key for prefix in _PREFIXES for entry in storage.list(prefix))
        return [key for key in keys if filenames.parse_shard(key) and key not in names]
    except (CorruptError, ForbiddenError, UsageError):
        return []


class _Named(Sequence[Place]):
    """The places of an index's shards, created on demand: there may be millions."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index.counts)

    def __getitem__(self, shard: Any) -> Any:
        entry = self._index.shard_entry(shard)
        return Place(entry.name, entry, self._index, shard)


def _by_names(storage: Storage, data: bytes | None, error: MdsxError | None) -> Catalog:
    stored = {entry.key: entry for prefix in _PREFIXES for entry in storage.list(prefix)}
    folders = filenames.folders_of_parts(stored)
    check_one_attempt(storage.url, folders)
    numbers = {folder: number for number, (folder,) in folders.items()}
    indexes = {
        number: key
        for folder, number in numbers.items()
        if (key := filenames.within(folder, filenames.INDEX)) in stored
    }
    _check_finished(storage.url, stored, indexes, finished=data is not None)
    found: dict[int | None, dict[int, list[tuple[int, Entry]]]] = {}  # part -> shard -> (repair, file)
    for key, entry in stored.items():
        if (parsed := filenames.parse_shard(key)) and parsed.canonical:
            found.setdefault(numbers.get(parsed.folder), {}).setdefault(parsed.number, []).append(
                (parsed.repair, entry)
            )
    kept = _snapshots(storage)
    appended = bool(kept)
    check_one_run(storage.url, numbers, stored, several=appended)
    if None in found and (len(found) > 1 or indexes) and not appended:
        hint = "move one of them away"
        raise UsageError("both the folder and its parts contain shards", file=storage.url, hint=hint)
    if not found and not indexes:
        message, hint = "no dataset is here: neither an index nor shards", "check the URL"
        raise MissingError(message, file=storage.url, hint=hint)
    stored_as = [entry for part in found.values() for files in part.values() for _, entry in files]
    of_part = {part: _part_index(storage, key) for part, key in indexes.items()}
    if stored_as:
        compressed = _all_compressed(storage.url, stored_as)
    else:
        compressed = any(index.compression is not None for index in of_part.values() if index is not None)
    places, metadata, schemas = list[Place](), list[dict[str, Any]](), Schemas()
    parts = {part for part in (*found, *indexes) if part is not None}
    of_parts = sorted(parts) if appended or None in found else _all_parts(storage.url, parts)
    for part in [*([None] if None in found else []), *of_parts]:
        index = of_part.get(part) if part is not None else None
        folder = "" if part is None else folders[part][0]
        if index is None:
            places += _of_files(storage.url, folder, found.get(part, {}), compressed=compressed)
            continue
        if (index.compression is not None) != compressed:
            raise UsageError("the parts use different compressions", file=file_of(storage, folder))
        metadata.append(index.metadata)
        schemas.setdefault((index.schema, index.rows_offset), filenames.within(folder, filenames.INDEX))
        for shard in range(len(index.counts)):
            described = index.shard_entry(shard)
            described = described._replace(name=filenames.within(folder, described.name))
            places.append(Place(described.name, described, index, shard))
    state: Literal["damaged", "missing"] = "missing" if data is None else "damaged"
    same = metadata[:1] if all(other == metadata[0] for other in metadata) else []
    last = next((index for index in reversed(kept) if index is not None), None)
    if appended:
        same = [] if last is None else [last.metadata]
    lengths = () if last is None else last.lengths
    return Catalog(state, places, "zstd" if compressed else None, data, None, error, same, lengths, schemas)


_PREFIXES = (
    filenames.SHARDS,
    filenames.REPAIRS,
    filenames.PARTS,
    filenames.RUNS,
    filenames.WRITER_FOLDER,
    filenames.CONVERT_FOLDER,
)


def _check_finished(url: str, stored: Mapping[str, Entry], indexes: Mapping[int, str], *, finished: bool) -> None:
    """Raise UsageError for an unfinished dataset, which its writer can finish."""
    for key in stored:
        if key != filenames.CONVERT_SKIPPED and (folder := filenames.work_folder(key)):  # that list stays for good
            part = filenames.part_number(key)
            if finished if part is None else part in indexes:
                continue
            where = url if part is None else f"{url}/{filenames.split_part(key)[0]}"
            converting = folder == filenames.CONVERT_FOLDER
            way = "run the same `mdsx convert` again" if converting else "finish it with resume=True"
            raise UsageError("the dataset is unfinished: a writer is or was at work", file=where, hint=way)


def _all_parts(url: str, found: set[Any]) -> list[int]:
    _check_gaps(url, found)
    missing = [filenames.part(number) for number in range(max(found)) if number not in found]
    if missing:
        raise MissingError("parts are missing", file=url, found=_names(missing), hint="write them, then `mdsx merge`")
    return sorted(found)


def _all_compressed(url: str, entries: Sequence[Entry]) -> bool:
    compressed = sorted(entry.key for entry in entries if filenames.is_compressed(entry.key))
    if compressed and len(compressed) < len(entries):
        plain = sorted(entry.key for entry in entries if not filenames.is_compressed(entry.key))
        few = min(compressed, plain, key=len)
        hint = "move away the shards that do not belong to the dataset"
        raise UsageError("some shards are compressed and some are not", file=url, found=_names(few), hint=hint)
    return bool(compressed)


def _part_index(storage: Storage, key: str) -> Index | None:
    try:
        return parse_index(storage.get(key).data, file=file_of(storage, key))
    except CorruptError:
        return None


def _snapshots(storage: Storage) -> list[Index | None]:
    """Return the snapshots, from before parts were appended, oldest first; None for a damaged one."""
    return [_part_index(storage, filenames.snapshot(fingerprint)) for fingerprint in snapshots(storage)]


def _check_gaps(url: str, numbers: Collection[int]) -> None:
    """Raise UsageError if a file's number is so large that most numbers before it are missing."""
    if max(numbers, default=0) > _MOST_GAPS + 2 * len(numbers):
        message, hint = "most of the numbered files before it are missing", "move it away if it does not belong here"
        raise UsageError(message, file=url, place=f"number {max(numbers)}", found=f"{len(numbers)} files", hint=hint)


def _of_files(
    url: str, folder: str, found: Mapping[int, list[tuple[int, Entry]]], *, compressed: bool
) -> Iterator[Place]:
    _check_gaps(f"{url}/{folder}", found)
    for number in range(max(found, default=-1) + 1):
        files = tuple(entry for _, entry in sorted(found.get(number, ()), key=lambda file: file[0]))
        yield Place(filenames.within(folder, filenames.shard(number, compressed=compressed)), files=files)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


_DIGITS = slice(-19, -3)  # of the checksum, before '"}\n'
_PROOF = 15  # of 16 digits: by chance, once in 10^16


def original(
    data: bytes,
    schema: Schema,
    compression: str | None,
    entries: Sequence[ShardEntry],
    guesses: Iterable[dict[str, Any]],
) -> bytes | None:
    """Return the index that `data` was before the damage, if that can be proven. `guesses` are candidates for its
    metadata, besides what can still be read in `data`."""
    start = max(0, data.find(b'"fingerprint":"'))
    found = (*_readable(data, "metadata", start, data.rfind(b',"checksum":"')), {}, *guesses)
    sums = (*_readable(data, "lengths", start, data.find(b',"metadata":', start)), {})
    for metadata, lengths in product(found, sums):
        lengths = {name: total for name, total in lengths.items() if type(total) is int}
        try:
            built = build_index(schema, compression, entries, metadata, lengths)
        except UsageError:
            continue
        if sum(one == other for one, other in zip(built[_DIGITS], data[_DIGITS], strict=False)) >= _PROOF:
            return built
    return None


def _readable(data: bytes, name: str, start: int, stop: int) -> Iterator[dict[str, Any]]:
    """Yield the object `name` if it can be read in a damaged index from `start` up to `stop`. It is not proven yet."""
    before = f'"{name}":'.encode()
    start = data.find(before, start)
    try:
        found = parse_json(data[start + len(before) : stop])
    except CorruptError:
        return
    if start >= 0 and isinstance(found, dict):
        yield found
