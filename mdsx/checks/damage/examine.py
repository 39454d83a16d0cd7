"""Check every byte of one shard, of any format: for `verify`, `repair` and `mdsx view`.

A shard that fails a check is read a second time: the first read may have been damaged in transfer. Reports name the
damaged sample and column, or the samples in a damaged compressed frame. If no check can locate the damage, the report
names the whole shard's hash. A missing shard counts as damage too. A storage error (no answer, no permission) says
nothing about the shard, and is raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import xxhash

from mdsx.checks.damage.report import ShardRepair
from mdsx.errors import (
    ChangedError,
    CorruptError,
    FormatError,
    MdsxError,
    MissingError,
    TruncatedError,
)
from mdsx.format import (
    FindsDamage,
    Index,
    Layout,
    Ranges,
    ReadsExtents,
    ReadsParts,
    ReadsWhole,
    Salvage,
    ShardEntry,
    StoredIndex,
    filenames,
    own_layout,
    salvage,
    surplus,
)
from mdsx.shards import download_shard, inspect_shard, with_side_object
from mdsx.storage import Entry, Storage, file_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

Item = TypeVar("Item")
Result = TypeVar("Result")


class RawBytes:
    """A buffer for one shard's raw bytes after the other's: allocating for each would cost more than all checks."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._size = 0

    def clear(self) -> None:
        self._size = 0

    def room(self, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = np.empty(size, np.uint8)
        return self._memory.data[:size]

    def write(self, chunk: Buffer) -> None:
        view, start = memoryview(chunk), self._size
        memory: object = view.obj
        self._size += view.nbytes
        if memory is self._memory:  # the chunk was read into `room`
            return
        if self._size > len(self._memory):
            larger = np.empty(max(self._size, 2 * len(self._memory)), np.uint8)
            larger[:start] = self._memory[:start]
            self._memory = larger
        self._memory[start : self._size] = np.frombuffer(view, np.uint8)

    @property
    def view(self) -> memoryview:
        return self._memory.data[: self._size]


def damages_of(
    storage: Storage, beside: Storage, index: StoredIndex, shard: int, *, first: int, raw: RawBytes | None = None
) -> Sequence[MdsxError]:
    """Check every byte of one shard, and return what is wrong. `first` is the dataset's number of its first sample,
    `raw` the buffer for its bytes. Raise TransportError if storage failed."""
    try:
        index = with_side_object(beside, index, shard)
    except (FormatError, MissingError, TruncatedError) as error:
        return [error]
    try:
        return _find_damage(storage, index, shard, first=first, raw=raw or RawBytes())
    except MissingError:
        last = first + int(index.counts[shard]) - 1
        message = f"the shard is not there; it held samples {first}-{last} of the dataset"
        return [MissingError(message, file=file_of(storage, index.name(shard)))]
    except (FormatError, TruncatedError, ChangedError) as error:
        return [error]


@dataclass(frozen=True, slots=True)
class Examined:
    """An examined shard of our format. If its `report` has no problems, it is undamaged, and `entry` is its entry in an
    index. `layout` is None if unknown. `rebuilt` is a shard of its undamaged samples, if asked for."""

    name: str
    report: ShardRepair
    entry: ShardEntry | None = None
    layout: Layout | None = None
    rebuilt: memoryview | None = None

    @classmethod
    def of(
        cls,
        storage: Storage,
        name: str,
        problems: Sequence[MdsxError] = (),
        *,
        entry: ShardEntry | None = None,
        layout: Layout | None = None,
        first: int | None = None,
        lost: Ranges = (),
        rebuilt: memoryview | None = None,
    ) -> Examined:
        samples = None if layout is None else layout.samples
        report = ShardRepair(file_of(storage, name), tuple(problems), samples, first, lost)
        return cls(name, report, entry, layout, rebuilt)


def _find_damage(storage: Storage, index: StoredIndex, shard: int, *, first: int, raw: RawBytes) -> Sequence[MdsxError]:
    """Return what is wrong with a shard of any format. `first` is the dataset's number of its first sample."""
    name, file = index.name(shard), file_of(storage, index.name(shard))
    if _is_undamaged(storage, index, shard, name, raw):
        return []
    if isinstance(index, ReadsParts | ReadsExtents):  # only the format knows which bytes of the object are the shard's
        return _check_whole(storage, index, shard, name, raw)
    stored, size = _read(storage, name, int(index.sizes[shard]))
    if isinstance(index, FindsDamage):
        return index.find_damage(shard, stored, size=size, file=file, first=first)
    if size != (expected := int(index.sizes[shard])):
        message = "the object has another size than the index says"
        return [CorruptError(message, file=file, place="size", found=size, expected=expected)]
    assert isinstance(index, ReadsWhole)
    receiver = index.receive(shard, file=file)
    raw.clear()
    try:
        for piece in receiver.feed(stored):
            raw.write(piece)
        receiver.finish()
        return index.check(shard, raw.view, file=file)
    except CorruptError as error:
        return [error]


def examine(
    storage: Storage, index: Index, shard: int, name: str, *, first: int | None, keep: bool = False
) -> Examined:
    """Examine shard number `shard` of `index`, of our format, which is stored as `name`.

    `first` is the dataset's number of its first sample. With `keep`, `rebuilt` has the undamaged samples of a damaged
    shard.
    """
    layout, entry = index.shard_layout(shard), index.shard_entry(shard)._replace(name=name)
    if _is_undamaged(storage, index, shard, name, RawBytes()):
        return Examined.of(storage, name, entry=entry, layout=layout)
    try:
        stored, size = _read(storage, name, entry.size)
    except MissingError as error:
        return Examined.of(storage, name, [error], layout=layout, first=first, lost=((0, layout.samples),))
    problems, found = index.salvage(shard, stored, size=size, file=file_of(storage, name), first=first)
    if not problems:
        return Examined.of(storage, name, entry=entry, layout=layout)
    rebuilt = found.rebuild() if keep and found.undamaged.any() else None
    return Examined.of(storage, name, problems, layout=layout, first=first, lost=found.lost, rebuilt=rebuilt)


def examine_alone(storage: Storage, stored: Entry, *, keep: bool = False) -> Examined:
    """Examine a shard of our format that no index names. Raise UnsupportedError for one of a later version."""
    key = stored.key
    file, compressed = file_of(storage, key), filenames.is_compressed(key)
    try:
        view, entry = inspect_shard(storage, key, stored.size)
        return Examined.of(storage, key, entry=entry, layout=view.layout)
    except (FormatError, MissingError, TruncatedError, ChangedError):
        pass
    try:
        data, size = _read(storage, key, stored.size)
        layout = own_layout(data, compressed=compressed, file=file)
    except (CorruptError, MissingError) as error:
        return Examined.of(storage, key, [error])
    expected = layout.raw_size if not compressed else stored.size
    found = salvage(data, layout, compressed=compressed, size=expected, file=file)
    problems: list[MdsxError] = [*surplus(size, expected, file), *found.problems]
    layout = found.layout
    if layout.row_key is None:  # the header is damaged, and nothing proves what it says
        return Examined.of(storage, key, problems)
    if not layout.samples:
        problems.append(CorruptError("it has no sample", file=file))
    if not problems:
        return Examined.of(storage, key, entry=_entry_of(stored, data, found), layout=layout)
    rebuilt = found.rebuild() if keep and found.undamaged.any() else None
    return Examined.of(storage, key, problems, layout=layout, lost=found.lost, rebuilt=rebuilt)


def in_order(work: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Result]:
    """Yield the result for each item, in order. At most `num_threads` are in flight, or finished but not yielded."""
    running: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(num_threads, thread_name_prefix="mdsx-damage") as pool:
        try:
            for item in items:
                if len(running) == num_threads:
                    yield running.popleft().result()
                running.append(pool.submit(work, item))
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _is_undamaged(storage: Storage, index: StoredIndex, shard: int, name: str, raw: RawBytes) -> bool:
    try:
        return not _check_whole(storage, index, shard, name, raw)
    except (FormatError, MissingError, TruncatedError, ChangedError):
        return False


def _check_whole(storage: Storage, index: StoredIndex, shard: int, name: str, raw: RawBytes) -> Sequence[CorruptError]:
    """Read a whole shard, stored as `name`. Return the problems in its raw bytes. Raise if its stored bytes are bad."""
    raw.clear()
    download_shard(storage, index, shard, raw.write, name=name, room=raw.room)
    return index.check(shard, raw.view, file=file_of(storage, name))


def _read(storage: Storage, name: str, most: int) -> tuple[memoryview, int]:
    """Return the first `most` stored bytes, and the object's size. Raise MissingError or TransportError."""
    try:
        size = storage.get(name, stop=1).total
    except MissingError:
        raise MissingError("the shard is not there", file=file_of(storage, name)) from None
    if size > most:
        return memoryview(storage.get(name, stop=most).data), size
    data = bytearray()
    storage.download(name, data.extend, size=size)
    return memoryview(data), size


def _entry_of(stored: Entry, data: memoryview, found: Salvage) -> ShardEntry:
    raw, key = found.view.buffer, found.view.row_key
    hashes = xxhash.xxh3_128_hexdigest(data), xxhash.xxh3_128_hexdigest(raw)
    return ShardEntry(stored.key, found.layout.samples, key, len(data), hashes[0], len(raw), hashes[1])
