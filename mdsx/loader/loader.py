"""Loader: the run of a StreamingDataLoader as NumPy arrays, in threads and without PyTorch."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, Unpack

from mdsx.dataset import Dataset
from mdsx.errors import UsageError, shown
from mdsx.loader.assembly import Collate, OnError, Transform
from mdsx.loader.batches import BatchLoader, prepared, rows_of
from mdsx.loader.collation import Uneven
from mdsx.loader.rank_data import rank_data
from mdsx.loader.ranks import RankOptions
from mdsx.loader.values import ARRAYS
from mdsx.mixture import Mixture
from mdsx.mosaicml import LOADER, explain
from mdsx.order import Shuffle
from mdsx.shards import ColumnChoice
from mdsx.storage import StorageOptions
from mdsx.storage.cache import CacheLike
from mdsx.stream import Layout, Place, Run, Steps, Task


class LoaderOptions(RankOptions, total=False):
    """More arguments of `Loader`, beside those of `mdsx.RankOptions`: `rank`, `world_size` and `replication`.

    Attributes:
        epoch_samples: The samples of an epoch, if not those of the dataset. Shorter and longer epochs continue through
            the dataset, and leave out only what `drop_last` drops.
        epoch_steps: The number of batches of an epoch, with `batching`. The groups of samples then continue from one
            epoch into the next: none is left out.
        info_column: The name of one more column, which says where each sample is from, as in StreamingDataset.
        collate_fn: From a list of samples to a batch. The default joins arrays and numbers to arrays, and the rest to
            lists.
        uneven: What the ranks get of a last batch that they cannot divide evenly: "empty" or "repeat", as in
            StreamingDataLoader.
        max_skipped: With on_error="skip": the share of samples that may fail, as in StreamingDataLoader.
        zero_copy: Whether `bytes`, `jpeg` and `png` values are read-only memory views of the mapped shards instead of
            copies.
        progress: Whether to show one line with the epoch's progress on rank 0.
        storage_options: As in `mdsx.Dataset`, if the dataset is a URL.
    """

    epoch_samples: int | None
    epoch_steps: int | None
    info_column: str | None
    collate_fn: Collate | None
    uneven: Uneven
    max_skipped: float | None
    zero_copy: bool
    progress: bool
    storage_options: StorageOptions | None


class Loader(BatchLoader):
    """The batches of a rank as NumPy arrays, epoch by epoch: one `for` is one epoch, or the rest of it after a resume.

        loader = mdsx.Loader(url, 32, seed=7, rank=jax.process_index(), world_size=jax.process_count())
        while loader.epoch < epochs:
            for batch in loader:
                ...

    It needs no PyTorch, and is the same run as that of `mdsx.torch.StreamingDataLoader`: the same samples in the same
    batches, and a state that fits both. A batch is a dict of columns: those of a fixed size as arrays [n, ...], the
    others as lists of n values, each as `mdsx.Dataset` returns it (bfloat16 as float32, exactly). With `transform` or
    `collate_fn`, it is what `collate_fn` makes of a list of samples. `mdsx.torch.StreamingDataLoader` says more about
    errors, a loop that was left, and copies: all of it is true here.

    Args:
        dataset: A URL (path, `file://...`, `s3://bucket/prefix`), an `mdsx.Dataset`, which may be a selection, or an
            `mdsx.Mixture`.
        batch_size: Samples per rank, or packed rows. The global batch is that times the world size. It is not given
            with `mdsx.MaxTokens`.
        batching: `mdsx.Pack` or `mdsx.MaxTokens`: packed rows or length-bounded batches instead of batches of samples,
            see docs/batches.md. A `transform` is applied to each sample before it is packed.
        columns: The only columns to decode: their names, or a mapping from new names to those in the dataset.
        seed: The seed of the order, an unsigned 64-bit integer.
        shuffle: True, an `mdsx.Shuffle`, or False: samples then come in the order in which they were written.
        cache: An `mdsx.Cache`, or its directory. An `mdsx.Dataset`, or a dataset of a mixture, may have it instead; it
            is an error to give both, and not the same.
        transform: A function from a sample, a dict as `mdsx.Dataset` returns it, to anything. With two parameters, the
            second is a NumPy generator made from the sample's seed, as in StreamingDataset.
        drop_last: Whether samples that do not fill the epoch's last batch are left out. Otherwise they are split over
            the ranks as a shorter batch.
        on_error: "skip" leaves out samples that are damaged, or for which `transform` raises.
        num_threads: How many threads prepare batches. More than one helps if `transform` is slow and releases the GIL,
            as decoders of images do. It does not change which samples are in a batch.
        options: More, see `mdsx.LoaderOptions`; and which part of every global batch this process reads: `rank`,
            `world_size` and `replication`, see `mdsx.RankOptions`. By default the launcher's environment says it,
            see docs/training.md.

    Raises:
        MissingError: There is no finished dataset.
        UsageError: An argument is invalid.
    """

    @explain("Loader", LOADER)
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset | Mixture,
        batch_size: int | None = None,
        *,
        batching: Layout | None = None,
        columns: ColumnChoice | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        cache: CacheLike = None,
        transform: Transform | None = None,
        drop_last: bool = True,
        on_error: OnError = "raise",
        num_threads: int = 1,
        **options: Unpack[LoaderOptions],
    ) -> None:
        if unknown := set(options) - set(LoaderOptions.__annotations__):
            raise TypeError(f"Loader() got an unexpected keyword argument {min(unknown)!r}")
        collate_fn, uneven = options.get("collate_fn"), options.get("uneven", "empty")
        epoch_steps = options.get("epoch_steps")
        if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
            raise UsageError("num_threads must be an integer of at least 1", found=shown(num_threads))
        self.num_threads = num_threads
        rows = rows_of(batch_size, batching, epoch_steps, collate_fn, uneven)
        data = rank_data(
            dataset,
            columns=columns,
            seed=seed,
            shuffle=shuffle,
            epoch_samples=options.get("epoch_samples"),
            cache=cache,
            transform=transform,
            info_column=options.get("info_column"),
            zero_copy=options.get("zero_copy", False),
            storage_options=options.get("storage_options"),
            rank_options=options,
            kit=ARRAYS,
        )
        super().__init__(
            data,
            Run(shuffled=data.shuffle),
            rows,
            batching=batching,
            epoch_steps=epoch_steps,
            drop_last=drop_last,
            collate_fn=collate_fn,
            uneven=uneven,
            on_error=on_error,
            max_skipped=options.get("max_skipped"),
            progress=options.get("progress", False),
        )

    def _open(self, batching: Steps, epoch: int, place: Place) -> Generator[tuple[Task, Any], None, None]:
        if self.num_threads == 1:
            return super()._open(batching, epoch, place)
        data, threads = self._data, self.num_threads
        data.warn_of_costs(batching)
        dealt = _Dealt(batching.tasks(epoch, place), threads)
        return _in_turn(
            [prepared(data.copy(), batching, dealt.to(number), self._meter, threads) for number in range(threads)]
        )


class _Dealt:
    """Deals tasks to threads in turn. Each takes its own when it is ready for them.

    An error of planning is dealt like the task that it prevents: to one thread, after the tasks before it.
    """

    def __init__(self, tasks: Iterator[Task], threads: int) -> None:
        self._tasks, self._next = tasks, 0
        self._waiting: list[deque[Task | Exception]] = [deque() for _ in range(threads)]
        self._lock = threading.Lock()

    def to(self, number: int) -> Iterator[Task]:
        """Yield the tasks of a thread."""
        mine = self._waiting[number]
        while True:
            with self._lock:
                while not mine and (task := self._plan()) is not None:
                    self._waiting[self._next].append(task)
                    self._next = (self._next + 1) % len(self._waiting)
                if not mine:
                    return
                task = mine.popleft()
            if isinstance(task, Exception):
                raise task
            yield task

    def _plan(self) -> Task | Exception | None:
        """Return the next task, or the error of planning it. After an error there are no more."""
        try:
            return next(self._tasks, None)
        except Exception as error:
            return error


def _in_turn(
    threads: list[Generator[tuple[Task, Any], None, None]],
) -> Generator[tuple[Task, Any], None, None]:
    """Yield what the threads make, in the order in which tasks were dealt."""
    try:
        while True:
            for thread in threads:
                made = next(thread, None)
                if made is None:
                    return
                yield made
    finally:
        for thread in threads:
            thread.close()
