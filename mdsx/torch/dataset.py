"""StreamingDataset: one rank's part of the global order, as PyTorch's IterableDataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn, Unpack
from weakref import WeakSet

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from mdsx.dataset import Dataset, Sample
from mdsx.errors import StateError, UsageError, shown
from mdsx.loader import RankData, RankOptions, rank_data, transformed
from mdsx.mixture import Mixture
from mdsx.mosaicml import STREAMING_DATASET, explain
from mdsx.order import Phases, Shuffle, Weight
from mdsx.process import at_fork
from mdsx.shards import ColumnChoice
from mdsx.storage import StorageOptions
from mdsx.storage.cache import CacheLike
from mdsx.stream import NOTHING, Batching, Iteration, RankReader, Run, Task, WorkerShare
from mdsx.torch.collation import TENSORS
from mdsx.torch.dataloader import WorkerStarts, check_batched_once, find_loader, spawning
from mdsx.torch.dividing import divided_twice, divider, filled_up, single_samples
from mdsx.warn import leave_warnings_to_others


class DatasetOptions(RankOptions, total=False):
    """More arguments of `StreamingDataset`, beside those of `RankOptions`.

    Attributes:
        info_column: The name of one more column, which says where each sample is from: a dict of `epoch`, `position`
            (in the epoch), `dataset` (the number of a mixture's component, else 0), `sample` (its number as stored in
            its dataset) and `seed` (64 bits, a function of the order's seed, epoch and position). They are integers in
            a sample and tensors in a batch of columns: int64 [n], and uint64 [n] for the seed. With `batching`, each
            row has a list of such dicts.
    """

    info_column: str | None


class StreamingDataset(IterableDataset[Any]):
    """A dataset in the global order of `(seed, epoch)`. Each rank gets its part of every global batch.

        data = StreamingDataset("s3://bucket/corpus", seed=7, cache=mdsx.Cache("cache", limit="200GB"))
        loader = StreamingDataLoader(data, batch_size=32, num_workers=2)

    Use it with `StreamingDataLoader`. With PyTorch's own `DataLoader`, give this object a `batch_size` and the loader
    `batch_size=None`, and call `set_epoch` before each epoch. Without a `batch_size` it yields single samples, to one
    worker at most. In a job of several ranks, single samples need `rank=0, world_size=1`, for a framework that divides
    them among the ranks; without it, they raise a UsageError. docs/loaders.md says what each framework needs.

    A `StreamingDataLoader` has a position of its own. While one reads this dataset, `state_dict`, `load_state_dict`,
    `state_after`, `set_epoch`, `resume` and `reweight` raise a UsageError here. A copy of this object is independent of
    it, at the same position.

    Args:
        dataset: A URL (path, `file://...`, `s3://bucket/prefix`), an `mdsx.Dataset`, which may be a selection or what
            `mdsx.zip` returns, or an `mdsx.Mixture`.
        columns: The only columns to decode: their names, or a mapping from new names to those in the dataset.
        seed: The seed of the order, an unsigned 64-bit integer.
        shuffle: True, an `mdsx.Shuffle`, or False: samples then come in the order in which they were written.
        epoch_samples: The samples of an epoch, if not those of the dataset. Shorter and longer epochs continue through
            the dataset, and leave out only what `drop_last` drops.
        cache: An `mdsx.Cache`, or its directory. An `mdsx.Dataset`, or a dataset of a mixture, may have it instead; it
            is an error to give both, and not the same.
        transform: A function from a sample, a dict as `mdsx.Dataset` returns it, to anything. `mdsx.torch.collate`
            joins what it returns. If it has exactly two required positional parameters, it is called as
            `transform(sample, rng)` with a NumPy generator made from the sample's seed: it gives the same numbers after
            a resume, and for any ranks, workers and batch size. Parameters with defaults, `*args`, keywords, and
            callables without a signature do not count.
        zero_copy: Whether `bytes`, `jpeg` and `png` values are read-only memory views of the mapped shards instead of
            copies. A shard with views stays in memory, and in the cache. Lists of such values are copies.
        batch_size: Samples per rank and batch, for PyTorch's own DataLoader.
        drop_last: Whether samples that do not fill an epoch's last batch are left out, the default. Otherwise they are
            split over the ranks as a shorter batch. A `StreamingDataLoader` must have the same value, if it is given
            here.
        storage_options: As in `mdsx.Dataset`, if `dataset` is a URL.
        options: `info_column`, see `mdsx.torch.DatasetOptions`; `rank`, `world_size` and `replication`, see
            `mdsx.RankOptions`.

    Raises:
        MissingError: There is no finished dataset.
        UsageError: An argument is invalid.
    """

    @explain("StreamingDataset", STREAMING_DATASET)
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset | Mixture,
        *,
        columns: ColumnChoice | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        epoch_samples: int | None = None,
        cache: CacheLike = None,
        transform: Callable[[Sample], Any] | Callable[[Sample, np.random.Generator], Any] | None = None,
        zero_copy: bool = False,
        batch_size: int | None = None,
        drop_last: bool | None = None,
        storage_options: StorageOptions | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        if unknown := set(options) - set(DatasetOptions.__annotations__):
            raise TypeError(f"StreamingDataset() got an unexpected keyword argument {min(unknown)!r}")
        self._data = rank_data(
            dataset,
            columns=columns,
            seed=seed,
            shuffle=shuffle,
            epoch_samples=epoch_samples,
            cache=cache,
            transform=transform,
            info_column=options.get("info_column"),
            zero_copy=zero_copy,
            storage_options=storage_options,
            rank_options=options,
            kit=TENSORS,
        )
        self._run = Run(shuffled=self._data.shuffle)
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._share: WorkerShare | None = None  # in a worker: which batches are this one's
        self._before_load: tuple[dict[str, Any], RankData, Phases, WorkerShare | None, dict[str, Any]] | None = None
        self._loaders: WeakSet[Any] = WeakSet()  # those that read this dataset
        self._starts = WorkerStarts()
        # It checks the size now, not in the first epoch.
        Batching(self._data.course.epoch_samples, 1 if batch_size is None else batch_size, 1, self._drops_last)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__getitem__ is not StreamingDataset.__getitem__:
            raise UsageError(
                f"{cls.__name__} overrides __getitem__, which is never called: a StreamingDataset is read in its "
                "order, not by number",
                hint="give what it does to a sample as transform=, such as super().__init__(url, transform=function)",
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: a run of its own at the same position, no loader."""
        if spawning():
            _look_for_loader()
        starts = WorkerStarts(seen=spawning(), divider=self._starts.divider if spawning() else None)
        own = {"_data": copy(self._data), "_run": copy(self._run), "_loaders": None, "_starts": starts}
        own["_before_load"] = None
        return {**self.__dict__, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _loaders=WeakSet())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r}, epoch={self.epoch})"

    def _ask_for(self, call: str) -> None:
        """Raise UsageError if a loader has the position that `call` is about."""
        if len(self._loaders):
            raise UsageError(
                f"a StreamingDataLoader reads this dataset, and has the position: {call} of the dataset has no effect "
                "on it",
                hint=f"call loader.{call}" if call != "state_after()" else "call loader.state_dict()",
            )

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns' names and types."""
        return {column.name: str(column.type) for column in self._data.view.schema.columns}

    @property
    def epoch(self) -> int:
        """Return the epoch of the next batch."""
        return self._run.coming[0]

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank, or of samples without a batch_size."""
        return self._batching().count()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration `epoch` from its start. Change nothing if that epoch comes next anyway."""
        self._ask_for("set_epoch()")
        self._run.set_epoch(epoch)
        self._starts.moved()

    def resume(self) -> None:
        """Make the next iteration take the rest of the epoch that was left. Change nothing if none was."""
        self._ask_for("resume()")
        self._run.resume()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after what `next()` returned: loading it gives the rest of the epoch."""
        self._ask_for("state_dict()")
        state = self._data.identity.state(self._run.epoch, self._run.position)
        return {**state, "worker": self._share.state(self._run.position)} if self._share else state

    def state_after(self, batches: int) -> dict[str, Any]:
        """Return the state after `batches` batches of the iteration that `set_epoch` or a loaded state began.

        It is for PyTorch's DataLoader, whose workers do not say how far they are, and fits any number of ranks and
        workers. Without a batch_size it counts samples.
        """
        self._ask_for("state_after()")
        batching = self._batching()
        return self._data.identity.state(*self._run.after(batches, batching))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue at `state`.

        If parts were appended to the dataset since, it continues with the snapshot of the dataset that the state is of,
        as `StreamingDataLoader.load_state_dict` does.

        Raises:
            StateError: The state is of another order, or of a worker process that this one does not replace. Nothing
                changes.
        """
        self._ask_for("load_state_dict()")
        data = self._data.for_state(state)
        epoch, position, phases = data.identity.check(state, _worker())
        share = WorkerShare.parse(state["worker"], position) if "worker" in state else None
        if share is not None:
            share.check(self._batching(data))
        before = self._run.mark(), self._data, self._data.phases, self._share
        data.use_phases(phases)  # first, as it may refuse them
        if data is not self._data:
            data.log_snapshot(self._data)
            self._data = data
        self._run.load(epoch, position)
        self._starts.moved()
        self._share = share
        self._before_load = (*before, self._run.mark())

    def _unload(self) -> None:
        """Undo the last `load_state_dict`, if nothing has happened since."""
        if self._before_load is not None and self._run.mark() == self._before_load[-1]:
            run, self._data, phases, self._share, _ = self._before_load
            self._run.back_to(run)
            self._data.use_phases(phases)

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight]) -> None:
        """Change the proportions of the mixture's components, from the current position on.

        This is a new phase, which the state holds; each component continues where it is. It holds up to the next entry
        of the mixture's schedule, if there is one. In a mixture in runs, it begins with the next run. Call it on every
        rank at the same position. For the dataset of a `StreamingDataLoader`, call the loader's `reweight`.

        Raises:
            UsageError: The dataset is no mixture, or PyTorch's DataLoader has started workers from this object: how far
                they have read is not known here.
        """
        self._ask_for("reweight()")
        if self._starts.seen:
            raise UsageError(
                "PyTorch's DataLoader reads this dataset in worker processes, so how far it is read is not known here",
                hint="make another StreamingDataset, load state_after(batches) of this one into it, reweight that, and "
                "give it to a new DataLoader; or use StreamingDataLoader, whose reweight does all this",
            )
        self._data.reweight(proportions, self._run.epoch * self._data.course.epoch_samples + self._run.position)

    @property
    def _drops_last(self) -> bool:
        return self._drop_last is not False

    def _batching(self, data: RankData | None = None) -> Batching:
        return (data or self._data).batching(self._batch_size or 1, self._drops_last)

    def _started_by(self, iterator: Any, *, resumed: bool) -> None:
        """Note that PyTorch's DataLoader starts a worker from this for `iterator`."""
        repeats = not resumed and (self._data.shuffle or bool(self._data.phases))
        if self._starts.started(iterator, repeats=repeats):
            self._data.warn_of_costs(self._batching())

    def __getitem__(self, index: object) -> NoReturn:
        """Raise UsageError: a StreamingDataset is read in its own order."""
        hint = "mdsx.Dataset(url)[i] reads a sample, mdsx.Dataset(url).take(numbers) many"
        raise UsageError("a StreamingDataset is read in its order, not by number", hint=hint)

    def __iter__(self) -> Iterator[Any]:
        worker, workers = _worker()
        if worker > 0:
            leave_warnings_to_others()
        if self._batch_size is None and workers > 1:
            raise UsageError(
                f"{workers} workers cannot share single samples",
                hint="use StreamingDataLoader, or StreamingDataset(batch_size=...) with DataLoader(batch_size=None)",
            )
        rank, world_size = self._data.ranks
        by = divider() or (self._starts.divider if get_worker_info() is not None else None)
        if world_size > 1:
            if by is not None:
                raise divided_twice(by, rank, world_size)
            if self._batch_size is None and not self._data.ranks_given:
                raise single_samples(rank, world_size)
        elif by is not None and by.fills:
            left = (self._data.course.epoch_samples - self._run.coming[1]) % by.fills
            if left:
                raise filled_up(by, left)
        if self._batch_size is not None:
            check_batched_once(self)
        batching = self._batching()
        batching.check(self._run.coming[0])
        return _DatasetIteration(self, batching, worker, workers)

    def _iterate(
        self, batching: Batching, epoch: int, position: int, worker: int, workers: int
    ) -> Iterator[tuple[Task, Any]]:
        """Yield the tasks from a position to the epoch's end, with their results."""
        origin = self._share.origin if self._share is not None and workers > 1 and position else position
        self._share = None
        if get_worker_info() is not None:
            self._share = WorkerShare(worker, workers, origin, batching.global_batch)
        tasks = enumerate(batching.tasks(epoch, position), (position - origin) // batching.global_batch)
        mine = (task for number, task in tasks if number % workers == worker)
        stand_in = self._batch_size is not None and self._data.maker.transform is not None
        if get_worker_info() is None or not self._starts.seen:  # else the main process has warned
            self._data.warn_of_costs(batching)
        reader = self._data.reader(batching, workers, stand_in=stand_in)
        try:
            for run in reader.runs(mine):
                yield from zip(run, self._results(reader, run), strict=True)
        finally:
            reader.close()

    def _results(self, reader: RankReader, run: list[Task]) -> Iterator[Any]:
        """Yield each task's result: its batch; or a sample, or NOTHING on a rank beyond the tail."""
        if self._batch_size is not None:
            yield from (self._data.maker.assemble(batch) for batch in reader.read_each(run))
            return
        try:
            batch = next(reader.read(run, joined=True))
        except Exception:
            if len(run) == 1:
                raise
            for task in run:  # yield the samples before the error first
                yield from self._results(reader, [task])
            return
        samples = transformed(self._data.view.schema, batch, self._data.maker.transform)
        for share in reader.shares(run):
            yield next(samples) if share else NOTHING


class _DatasetIteration(Iteration):
    """One iteration over a dataset.

    torchdata saves and loads its state beside the dataset's: after an epoch's last batch, the dataset is in the next
    epoch, but a StatefulDataLoader that resumes there is still in the iteration that has nothing left.
    """

    def __init__(self, dataset: StreamingDataset, batching: Batching, worker: int, workers: int) -> None:
        warns = dataset._data.warns and get_worker_info() is None
        super().__init__(dataset._run, batching, "dataset", warns=warns)
        self._dataset, self._cut, self._worker, self._workers = dataset, batching, worker, workers
        self._data = dataset._data

    def _begin(self, epoch: int, position: int) -> Iterator[tuple[Task, Any]]:
        if self._data is not self._dataset._data:  # a state of a snapshot was loaded before the first batch
            self._data = self._dataset._data
            self.batching = self._cut = self._dataset._batching()
        return self._dataset._iterate(self._cut, epoch, position, self._worker, self._workers)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch of this iteration."""
        return {"epoch": self._epoch if self._taken else self._run.place(self)[0]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the iteration of that epoch: at its end if the dataset is in a later one."""
        epoch = state.get("epoch") if isinstance(state, Mapping) and set(state) == {"epoch"} else None
        place, position = self._run.place(self)
        if type(epoch) is not int or not (epoch == place or (epoch == place - 1 and position == 0)):
            self._dataset._unload()
            raise StateError("not the state of an iteration", place="epoch", found=shown(state))
        self._over = epoch < place


def _worker() -> tuple[int, int]:
    """Return this worker's number, and how many there are."""
    info = get_worker_info()
    return (info.id, info.num_workers) if info is not None else (0, 1)


def _look_for_loader() -> None:
    """Notify a dataset if a DataLoader is starting workers from it."""
    found = find_loader(lambda owned: isinstance(owned, StreamingDataset))
    if found is not None:
        iterator, dataset, resumed = found
        dataset._started_by(iterator, resumed=resumed)


at_fork(before=_look_for_loader)  # with the stack that leads to the fork
