"""Find damage in a shard or a whole dataset: check every byte against every checksum and rule.

Shards are downloaded, decompressed and checked in memory, at most `num_threads` at once. Reports name the damaged
sample and column, or the samples in a damaged compressed frame. If no check can locate the damage, the report names
the whole shard's hash. A missing or unreadable shard counts as damage too.

Selections next to the index are checked too: that their bytes are undamaged, that they belong to the dataset or to a
snapshot, and, if no shard is damaged, that their conditions choose these samples.

A shard that fails a check is read a second time: the first read may have been damaged in transfer. A storage error (no
answer, no permission) says nothing about the shard, and is raised.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import xxhash

from mdsx.base.progress import Progress
from mdsx.base.system import cores
from mdsx.checks.damage.report import ShardRepair, Verification
from mdsx.errors import (
    ChangedError,
    CorruptError,
    FormatError,
    MdsxError,
    MissingError,
    TruncatedError,
    UsageError,
    restated,
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
    StoredSelection,
    filenames,
    own_layout,
    salvage,
    surplus,
)
from mdsx.order import bits_of
from mdsx.shards import (
    DatasetSlice,
    Shards,
    choose_where,
    download_shard,
    inspect_shard,
    read_index,
    read_selection,
    selections_at,
    snapshots,
    with_side_object,
)
from mdsx.storage import Entry, Storage, StorageOptions, file_of, open_beside, open_storage

if TYPE_CHECKING:
    from typing_extensions import Buffer


def verify(
    url: str | os.PathLike[str],
    *,
    num_threads: int = 4,
    storage_options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> Verification:
    """Check every byte of the dataset at `url`, and report all damage, in the order of the shards.

        found = mdsx.verify("s3://bucket/corpus")
        assert found.ok, list(found)

    Args:
        url: A finished dataset. If its index is damaged, only that is reported.
        num_threads: How many shards to check at once; each is held in memory. For local datasets, at most one per core.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.
        index: The folder with the index, if it is not `url`, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` after each shard.

    Raises:
        MissingError: There is no dataset.
        TransportError: Storage failed.
    """
    storage = open_storage(url, storage_options)
    beside = storage if index is None else open_beside(url, index, storage_options)
    return verify_stored(storage, beside, num_threads=num_threads, watch=watch)


def verify_stored(
    storage: Storage, beside: Storage, *, num_threads: int, watch: Callable[[Progress], object]
) -> Verification:
    """Do what `verify` does for the dataset in `storage` whose index is in `beside`."""
    try:
        index = read_index(beside)
    except CorruptError as error:
        watch(Progress(0, 0, 0, problems=(error,)))
        return Verification(storage.url, None, 0, 0, 0, (error,))
    firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(index.counts)))
    of_shards, of_size, size = len(index.counts), sum(index.sizes.tolist()), 0
    damages: list[MdsxError] = []
    if storage.path(filenames.INDEX) is not None:  # nothing waits for a server; new memory costs as much as the checks
        num_threads = min(num_threads, cores())
    free = SimpleQueue[RawBytes]()
    for _ in range(num_threads):
        free.put(RawBytes())

    def examined(shard: int) -> Sequence[MdsxError]:
        raw = free.get()
        try:
            return damages_of(storage, beside, index, shard, first=int(firsts[shard]), raw=raw)
        finally:
            free.put(raw)

    for shard, found in enumerate(in_order(examined, range(of_shards), num_threads)):
        damages += found
        size += int(index.sizes[shard])
        watch(Progress(int(firsts[shard + 1]), size, of_size, shard + 1, of_shards, tuple(found)))
    beside_it = [*(_damaged_snapshots(beside) if isinstance(index, Index) else ())]
    beside_it += _damaged_selections(storage, beside, index, evaluates=not damages)
    if found := beside_it:
        damages += found
        watch(Progress(index.samples, size, of_size, of_shards, of_shards, tuple(found)))
    return Verification(storage.url, index.format, index.samples, of_shards, size, tuple(damages), index.checks)


def _damaged_snapshots(storage: Storage) -> Sequence[MdsxError]:
    damages = list[MdsxError]()
    for fingerprint in snapshots(storage):
        try:
            read_index(storage, fingerprint)
        except FormatError as error:
            damages.append(error)
    return damages


def _damaged_selections(
    storage: Storage, beside: Storage, index: StoredIndex, *, evaluates: bool
) -> Iterator[MdsxError]:
    """Yield the errors in the selections of a dataset and its snapshots. With `evaluates`, also check that the
    dataset's own selections have the samples that their conditions choose."""
    for name, fingerprint in selections_at(beside):
        try:
            own = index if fingerprint == index.fingerprint else read_index(beside, fingerprint)
        except (FormatError, MissingError):
            continue  # the selection of a state that the dataset no longer has
        try:
            found = read_selection(beside, own, name)
            if evaluates and own is index:
                _check_condition(storage, beside, index, found)
        except FormatError as error:
            command = shlex.join(["mdsx", "select", beside.url, "--where", "CONDITION", "--name", name])
            yield restated(error, hint=error.hint or f"make it again: {command}")


def _check_condition(storage: Storage, beside: Storage, index: StoredIndex, found: StoredSelection) -> None:
    """Raise CorruptError unless a selection has the samples that its condition chooses."""
    file = file_of(beside, filenames.selection(found.head.name, found.head.fingerprint))
    try:
        chosen = choose_where(DatasetSlice.whole(Shards.of(storage, beside, index)), found.head.where)
    except UsageError as error:
        raise CorruptError(f"the condition cannot be evaluated: {error}", file=file, place="where") from None
    if bits_of(chosen, index.counts) != found.bits:
        message = "the selection differs from the samples that its condition chooses"
        count = int(chosen.counts.sum())
        raise CorruptError(message, file=file, place="bitmap", found=found.head.selected, expected=count)


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
    """Check every byte of one shard, and return what is wrong, storage errors included. `first` is the dataset's number
    of its first sample, `raw` the buffer for its bytes."""
    try:
        index = with_side_object(beside, index, shard)
    except (FormatError, MissingError, TruncatedError) as error:
        return [error]
    try:
        return find_damage(storage, index, shard, first=first, raw=raw or RawBytes())
    except MissingError:
        last = first + int(index.counts[shard]) - 1
        message = f"the shard is not there; it held samples {first}-{last} of the dataset"
        return [MissingError(message, file=file_of(storage, index.name(shard)))]
    except MdsxError as error:
        return [error]


# --- one shard

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def find_damage(storage: Storage, index: StoredIndex, shard: int, *, first: int, raw: RawBytes) -> Sequence[MdsxError]:
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
    except TruncatedError:  # it is empty
        return memoryview(b""), 0
    if size > most:
        return memoryview(storage.get(name, stop=most).data), size
    data = bytearray()
    storage.download(name, data.extend, size=size)
    return memoryview(data), size


def _entry_of(stored: Entry, data: memoryview, found: Salvage) -> ShardEntry:
    raw, key = found.view.buffer, found.view.row_key
    hashes = xxhash.xxh3_128_hexdigest(data), xxhash.xxh3_128_hexdigest(raw)
    return ShardEntry(stored.key, found.layout.samples, key, len(data), hashes[0], len(raw), hashes[1])
