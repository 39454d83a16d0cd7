"""One shard, every byte of it: is it sound, and if not, what is damaged and which samples are lost.

A shard that is not sound is read a second time, whole: what came wrong only on its way is no damage. An error of
storage (no answer, no permission) says nothing about the shard, and is raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import xxhash

from mdsx.errors import ChangedError, CorruptError, FormatError, MdsxError, MissingError, TruncatedError
from mdsx.format import (
    Index,
    Layout,
    Ranges,
    Salvage,
    ShardEntry,
    ShardView,
    check_shard,
    filenames,
    own_layout,
    salvage,
)
from mdsx.shards import Hashes, inspect_shard, stream_shard
from mdsx.storage import Entry, Storage


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a shard. It is sound if there are no problems: then `entry` is what an index says of it.

    `layout` is None where nothing tells how the shard is made; then all of it is lost, however much that is. `lost`:
    the numbers in the shard of the samples that are. `rebuilt`: a shard of the others, where it was asked for.
    """

    name: str
    problems: list[MdsxError] = field(default_factory=list)
    entry: ShardEntry | None = None
    layout: Layout | None = None
    lost: Ranges = ()
    rebuilt: memoryview | None = None

    @property
    def lost_samples(self) -> int | None:
        return None if self.layout is None else sum(stop - start for start, stop in self.lost)

    @property
    def kept(self) -> int:
        """How many samples are sound."""
        return 0 if self.layout is None else self.layout.samples - sum(stop - start for start, stop in self.lost)


def examine(storage: Storage, index: Index, entry: ShardEntry, *, first: int | None, keep: bool = False) -> Finding:
    """The shard that `index` names by `entry`; its first sample is number `first` of the dataset. With `keep`, what is
    sound of a damaged one is kept as `rebuilt`."""
    file = file_of(storage, entry.name)
    layout = Layout(index.schema, entry.row_key, index.rows_offset, entry.samples, entry.raw_size)
    if _is_sound(storage, index, entry, layout, file):
        return Finding(entry.name, entry=entry, layout=layout)
    try:
        stored, size = _read(storage, entry.name, entry.size)
    except MissingError as error:
        return Finding(entry.name, [error], layout=layout, lost=((0, layout.samples),))
    compressed = index.compression is not None
    found = salvage(stored, layout, compressed=compressed, size=entry.size, file=file, first=first)
    if found.other is None:
        problems: list[MdsxError] = [*_behind(size, entry.size, file), *found.problems]
    else:
        problems = [_another(index, found.other, entry, file)]
    if not problems:
        for data, expected in ((stored, entry.hash), (found.view.buffer, entry.raw_hash)):
            if (hashed := xxhash.xxh3_128_hexdigest(data)) != expected:
                message = "the stored bytes are not those that the index names, though their content is"
                problems.append(CorruptError(message, file=file, place="XXH3-128", found=hashed, expected=expected))
    if not problems:
        return Finding(entry.name, entry=entry, layout=layout)
    rebuilt = found.rebuild() if keep and found.sound.any() else None
    return Finding(entry.name, problems, layout=layout, lost=found.lost, rebuilt=rebuilt)


def examine_alone(storage: Storage, stored: Entry, *, keep: bool = False) -> Finding:
    """A shard of which only its own header tells anything. Raises UnsupportedError for one of a later version."""
    file, compressed = file_of(storage, stored.key), filenames.is_compressed(stored.key)
    try:
        view, entry = inspect_shard(storage, stored.key, stored.size, file=file)
        return Finding(stored.key, entry=entry, layout=_layout_of(view))
    except (FormatError, MissingError, TruncatedError, ChangedError):
        pass
    try:
        data, size = _read(storage, stored.key, stored.size)
        layout = own_layout(data, compressed=compressed, file=file)
    except (CorruptError, MissingError) as error:
        return Finding(stored.key, [error])
    expected = layout.raw_size if not compressed else stored.size
    found = salvage(data, layout, compressed=compressed, size=expected, file=file)
    problems: list[MdsxError] = [*_behind(size, expected, file), *found.problems]
    layout = found.layout
    if layout.row_key is None:  # nothing proves what the damaged header says
        return Finding(stored.key, problems)
    if not layout.samples:
        problems.append(CorruptError("it has no sample", file=file))
    if not problems:
        return Finding(stored.key, entry=_entry_of(stored, data, found), layout=layout)
    rebuilt = found.rebuild() if keep and found.sound.any() else None
    return Finding(stored.key, problems, layout=layout, lost=found.lost, rebuilt=rebuilt)


def file_of(storage: Storage, name: str) -> str:
    return f"{storage.url.rstrip('/')}/{name}"


def _is_sound(storage: Storage, index: Index, entry: ShardEntry, layout: Layout, file: str) -> bool:
    raw, raw_size = bytearray(), entry.raw_size if index.compression else None
    try:
        hashes = stream_shard(storage, entry.name, raw.extend, size=entry.size, raw_size=raw_size, file=file)
        if hashes != Hashes(entry.hash, entry.raw_hash) or check_shard(
            raw, file=file, schema=index.schema, row_key=entry.row_key
        ):
            return False
        return _layout_of(ShardView.parse(raw, file=file)) == layout
    except (FormatError, MissingError, TruncatedError, ChangedError):
        return False


def _layout_of(view: ShardView) -> Layout:
    return Layout(view.schema, view.row_key, view.rows_offset, view.samples, len(view.buffer))


def _read(storage: Storage, name: str, most: int) -> tuple[memoryview, int]:
    """The stored bytes, at most so many, and how many there are. Raises MissingError, TransportError."""
    size = next((entry.size for entry in storage.list(name) if entry.key == name), None)
    if size is None:
        raise MissingError("the shard is not there", file=file_of(storage, name))
    if size > most:
        return memoryview(storage.get(name, stop=most).data), size
    data = bytearray()
    storage.download(name, data.extend, size=size)
    return memoryview(data), size


def _behind(size: int, expected: int, file: str) -> list[CorruptError]:
    if size <= expected:
        return []
    message = "bytes follow the shard"
    return [CorruptError(message, file=file, place=f"byte {expected}", found=f"{size} bytes", expected=expected)]


def _another(index: Index, key: int, entry: ShardEntry, file: str) -> CorruptError:
    """Another shard than the one that the index names: no sample of it can be believed."""
    message = "is not the shard that the index names"
    for shard in np.flatnonzero(index.row_keys == np.uint64(key))[:1].tolist():
        message += f", but {index.name(shard)}"
    found, expected = f"{key:016x}", f"{entry.row_key:016x}"
    return CorruptError(message, file=file, place="row key", found=found, expected=expected)


def _entry_of(stored: Entry, data: memoryview, found: Salvage) -> ShardEntry:
    raw, key = found.view.buffer, found.view.row_key
    hashes = xxhash.xxh3_128_hexdigest(data), xxhash.xxh3_128_hexdigest(raw)
    return ShardEntry(stored.key, found.layout.samples, key, len(data), hashes[0], len(raw), hashes[1])
