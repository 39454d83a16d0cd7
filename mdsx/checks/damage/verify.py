"""Find damage in a whole dataset: check every byte against every checksum and rule.

Shards are downloaded, decompressed and checked in memory (`examine.py`), at most `num_threads` at once.

Selections next to the index are checked too: that their bytes are undamaged, that they belong to the dataset or to a
snapshot, and, if no shard is damaged, that their conditions choose these samples.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

import numpy as np

from mdsx.base.arguments import check_count
from mdsx.base.progress import Progress
from mdsx.base.system import cores
from mdsx.checks.damage.examine import RawBytes, damages_of, in_order
from mdsx.checks.damage.report import Verification
from mdsx.errors import CorruptError, FormatError, MdsxError, MissingError, UsageError, restated
from mdsx.format import Index, StoredIndex, StoredSelection, filenames
from mdsx.order import bits_of
from mdsx.shards import DatasetSlice, Shards, choose_where, read_index, read_selection, selections_at, snapshots
from mdsx.storage import Storage, StorageOptions, file_of, open_beside, open_storage


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
    check_count("num_threads", num_threads)
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
