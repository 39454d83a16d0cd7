"""StreamingDataset: one rank's part of the global order, as PyTorch's IterableDataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from multiprocessing.context import get_spawning_popen
from typing import Any, NoReturn
from weakref import WeakSet

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from mdsx.base.mosaicml import STREAMING_DATASET, explain
from mdsx.base.warn import leave_warnings_to_others
from mdsx.datasets import Dataset, Mixture, Sample
from mdsx.decoding import check_on_cpu
from mdsx.errors import StateError, UsageError, shown
from mdsx.loader import BatchMaker, Mesh, Ranks, Reading, RunSpec, opened, transformed
from mdsx.order import Shuffle, Weight
from mdsx.shards import ColumnChoice, Decode, DTypes, Fill
from mdsx.storage import StorageOptions
from mdsx.storage.cache import CacheLike
from mdsx.stream import NOTHING, Cursor, Iteration, RankReader, Run, SampleSteps, Task, WorkerShare
from mdsx.torch.collation import TENSORS
from mdsx.torch.dividing import Divider, check_batched_once, divided_twice, divider, filled_up, single_samples
from mdsx.torch.starts import WorkerStarts


class StreamingDataset(IterableDataset[Any]):
    """A dataset in the global order of `(seed, epoch)`. Each rank gets its part of every global batch.

        data = StreamingDataset("s3://bucket/corpus", seed=7, cache=mdsx.Cache("cache", limit="200GB"))
        loader = StreamingDataLoader(data, batch_size=32, num_workers=2)

    Use it with `StreamingDataLoader`. With PyTorch's own `DataLoader`, give this object a `batch_size` and the loader
    `batch_size=None`, and call `set_epoch` before each epoch. Without a `batch_size` it yields single samples, to at
    most one worker. In a job of several ranks, reading single samples raises a UsageError, unless you give `rank=0,
    world_size=1` for a framework that divides samples among the ranks. docs/trainers.md says what each framework needs.

    A `StreamingDataLoader` has its own position. While one reads this dataset, `state_dict`, `load_state_dict`,
    `state_after`, `set_epoch`, `resume` and `reweight` of the dataset raise a UsageError. A copy of this object is
    independent of it, at the same position.

    Args:
        dataset: A URL (path, `file://...`, `s3://bucket/prefix`), an `mdsx.Dataset`, which may be a selection or come
            from `mdsx.zip`, or an `mdsx.Mixture`.

        columns: Decode only these columns: their names, or a mapping from new names to names in the dataset.
        dtypes: Number types to convert columns to, such as `{"tokens": "int64"}`; see `mdsx.Dataset`.
        fill: Values that replace null, such as `{"score": math.nan}`; see `mdsx.Dataset`.
        decode: Decoders for columns of encoded bytes, such as `{"image": mdsx.Image(size=224)}`. They run in the
            threads or processes that prepare batches, before the transform. Null stays None. Arrays of one size are
            stacked; other columns, and columns that may be null, become lists. See docs/images.md.
        cache: An `mdsx.Cache`, or its directory. An `mdsx.Dataset`, or a dataset in a mixture, may have a cache
            already; two different caches are an error.
        storage_options: As in `mdsx.Dataset`, if `dataset` is a URL.

        seed: The seed of the order, an unsigned 64-bit integer.
        shuffle: True, an `mdsx.Shuffle`, or False for the order in which samples were written.
        epoch_samples: The number of samples in an epoch, by default the dataset's. Shorter and longer epochs continue
            through the dataset, and leave out only what `drop_last` drops.
        rank: This process's rank. The default is torch.distributed's once it is initialised, or else the launcher's
            (torchrun, Slurm, Open MPI, ..., see docs/training.md), or else 0.
        world_size: The number of processes. The default is as for `rank`, or else 1. Give both or neither.
        replication: Which ranks get the same samples, for tensor, pipeline and context parallelism. A number R means
            ranks 0 to R-1, R to 2R-1, and so on. With a `torch.distributed.device_mesh`, give it and the names of these
            dimensions: `(mesh, "tp")` or `(mesh, ("pp", "tp"))`. Batch sizes and states do not count replicas.

        transform: A function of a sample, a dict as `mdsx.Dataset` returns it. It may return anything;
            `mdsx.torch.collate` collates the results.
        random_transform: The same, called as `random_transform(sample, rng)` with a NumPy generator seeded by the
            sample's seed. It draws the same numbers after a resume, and for any ranks, workers and batch size.
        info_column: Add a column with this name that says where each sample comes from: a dict of `epoch`, `position`
            (in the epoch), `dataset` (the number of a mixture's component, or 0), `sample` (its stored number in its
            dataset) and `seed` (64 bits, a function of the order's seed, epoch and position). They are integers in a
            sample and tensors in a batch of columns: int64 [n], and uint64 [n] for the seed. With `mdsx.Pack`, each row
            has a list of such dicts.
        zero_copy: Whether values of `bytes` and images are read-only memory views of the mapped shards instead of
            copies. A shard stays in memory, and in the cache, while it has views. Lists of such values are copies.

        batch_size: Samples per rank and batch, for PyTorch's own DataLoader.
        drop_last: Whether to leave out samples that do not fill the epoch's last batch, the default. Otherwise they are
            split over the ranks as a shorter batch. If you give it here, a `StreamingDataLoader` must have the same
            value.

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
        dtypes: DTypes | None = None,
        fill: Fill | None = None,
        decode: Decode | None = None,
        cache: CacheLike = None,
        storage_options: StorageOptions | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        epoch_samples: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        replication: int | tuple[Mesh, str | Sequence[str]] = 1,
        transform: Callable[[Sample], Any] | None = None,
        random_transform: Callable[[Sample, np.random.Generator], Any] | None = None,
        info_column: str | None = None,
        zero_copy: bool = False,
        batch_size: int | None = None,
        drop_last: bool | None = None,
    ) -> None:
        self._reading = Reading.of(
            RunSpec(
                dataset=opened(dataset, cache, storage_options),
                columns=columns,
                dtypes=dtypes,
                fill=fill,
                decode=decode,
                seed=seed,
                shuffle=shuffle,
                epoch_samples=epoch_samples,
                ranks=Ranks(rank, world_size, replication),
                transform=transform,
                random_transform=random_transform,
                info_column=info_column,
                zero_copy=zero_copy,
                batch_size=1 if batch_size is None else batch_size,
                drop_last=drop_last is not False,
                backend=TENSORS,
            )
        )
        self._run = Run(shuffled=bool(shuffle))
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._share: WorkerShare | None = None  # in a worker: its share of the batches
        self._before_load: tuple[dict[str, Any], Reading, WorkerShare | None, dict[str, Any]] | None = None
        self._loaders: WeakSet[Any] = WeakSet()  # loaders that read this dataset
        self._starts = WorkerStarts()
        self._divider: Divider | None = None  # in a spawned worker: the framework that divides what it reads

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__getitem__ is not StreamingDataset.__getitem__:
            raise UsageError(
                f"{cls.__name__} overrides __getitem__, which is never called: a StreamingDataset is read in its "
                "order, not by number",
                hint="give the change of a sample as transform=, such as super().__init__(url, transform=function)",
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: its own run at the same position, without loaders."""
        spawning = get_spawning_popen() is not None
        own: dict[str, Any] = {"_run": copy(self._run), "_loaders": None, "_before_load": None}
        own |= {"_starts": self._starts if spawning else WorkerStarts(), "_divider": divider() if spawning else None}
        return {**self.__dict__, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _loaders=WeakSet())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._reading.spec!r}, epoch={self.epoch})"

    def _ask_for(self, call: str) -> None:
        """Raise UsageError if a loader has the position that `call` is about."""
        if len(self._loaders):
            raise UsageError(
                f"{call} of the dataset has no effect, because a StreamingDataLoader reads it and has the position",
                hint=f"call loader.{call}" if call != "state_after()" else "call loader.state_dict()",
            )

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns' names and types."""
        return {column.name: str(column.type) for column in self._reading.view.schema.columns}

    @property
    def epoch(self) -> int:
        """Return the epoch of the next batch."""
        return self._run.coming_epoch

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch on this rank; without a batch_size, of samples."""
        return self._steps().count()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration read `epoch` from its start. Change nothing if that epoch comes next anyway."""
        self._ask_for("set_epoch()")
        self._run.set_epoch(epoch)
        self._starts.moved()

    def resume(self) -> None:
        """Make the next iteration continue the epoch that was interrupted. Change nothing if none was."""
        self._ask_for("resume()")
        self._run.resume()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after what `next()` returned. A run that loads it continues with the rest of the
        epoch."""
        self._ask_for("state_dict()")
        state = self._reading.state(self._run.cursor)
        return {**state, "worker": self._share.state(self._run.cursor.position)} if self._share else state

    def state_after(self, batches: int) -> dict[str, Any]:
        """Return the state after `batches` batches of the iteration that `set_epoch` or a loaded state began.

        Use it with PyTorch's DataLoader, whose workers do not report their positions. The state fits any number of
        ranks and workers. Without a batch_size, `batches` counts samples.
        """
        self._ask_for("state_after()")
        return self._reading.state(self._steps().after_batches(self._run.start, batches))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue at `state`.

        If parts were appended to the dataset since, the run continues with the snapshot that the state was saved with,
        as with `StreamingDataLoader.load_state_dict`.

        Raises:
            StateError: The state belongs to another order, or to a worker process that this one does not replace.
                Nothing changes.
        """
        self._ask_for("load_state_dict()")
        if isinstance(state, Mapping) and "plan" in state:
            hint = "load it into a StreamingDataLoader"
            raise StateError(
                "the state belongs to a run with a plan, which a dataset alone cannot have", place="plan", hint=hint
            )
        reading = self._reading.at_snapshot(state).in_mixture_of(state).in_order_of(state)
        epoch, position, phases = reading.identity.check(state, _worker())
        share = WorkerShare.parse(state["worker"], position) if "worker" in state else None
        if share is not None:
            share.check_size(reading.spec.rows or 1, reading.spec.ranks.part[1])
        reading = reading.with_mixture_phases(phases)
        reading.check_removed(Cursor(epoch, position))
        before = self._run.mark(), self._reading, self._share
        reading.log_snapshot(self._reading)
        self._reading = reading
        self._run.load(Cursor(epoch, position))
        self._starts.moved()
        self._share = share
        self._before_load = (*before, self._run.mark())

    def _unload(self) -> None:
        """Undo the last `load_state_dict`, if nothing has happened since."""
        if self._before_load is not None and self._run.mark() == self._before_load[-1]:
            run, self._reading, self._share, _ = self._before_load
            self._run.back_to(run)

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight]) -> None:
        """Change the proportions of the mixture's components, from the current position on.

        A mapping may omit components: these keep their present numbers. Each component continues where it is. The
        proportions apply up to the next entry of the mixture's schedule, if there is one. A mixture with `run=` changes
        with its next run. The state holds the proportions. Call it on every rank at the same position. For the dataset
        of a `StreamingDataLoader`, call the loader's `reweight`.

        Raises:
            UsageError: The dataset is not a mixture, or PyTorch's DataLoader has started workers from this object, so
                their position is unknown here.
        """
        self._ask_for("reweight()")
        if self._starts.seen:
            raise UsageError(
                "PyTorch's DataLoader reads this dataset in worker processes, so their position is unknown here",
                hint="make another StreamingDataset, load state_after(batches) of this one into it, reweight it, and "
                "give it to a new DataLoader; or use StreamingDataLoader, whose reweight does all this",
            )
        reading = self._reading.reweighted(proportions, self._run.cursor)
        if (running := self._run.iteration) is not None:
            running.close()  # it reads on in the order before
        self._reading = reading

    def _steps(self, part: tuple[int, int] | None = None) -> SampleSteps:
        """Return how epochs are cut. `part`: the rank and number of ranks, by default the present ones."""
        spec = self._reading.spec
        _, ranks = spec.ranks.part if part is None else part
        return SampleSteps(self._reading.course.epoch_samples, spec.rows or 1, ranks, spec.drop_last)

    def __getitem__(self, index: object) -> NoReturn:
        """Raise UsageError: a StreamingDataset is read in its own order."""
        hint = "mdsx.Dataset(url)[i] reads a sample, mdsx.Dataset(url).take(numbers) many"
        raise UsageError("a StreamingDataset is read in its order, not by number", hint=hint)

    def __iter__(self) -> Iterator[Any]:
        check_on_cpu(self._reading.view.decodes, "a StreamingDataset without a StreamingDataLoader")
        worker, workers = _worker()
        if worker > 0:
            leave_warnings_to_others()
        if self._batch_size is None and workers > 1:
            raise UsageError(
                f"{workers} workers cannot share single samples",
                hint="use StreamingDataLoader, or StreamingDataset(batch_size=...) with DataLoader(batch_size=None)",
            )
        ranks = self._reading.spec.ranks
        rank, world_size = ranks.part
        by = divider() or self._divider
        if world_size > 1:
            if by is not None:
                raise divided_twice(by, rank, world_size)
            if self._batch_size is None and not ranks.given:
                raise single_samples(rank, world_size)
        elif by is not None and by.fills:
            left = (self._reading.course.epoch_samples - self._run.coming.position) % by.fills
            if left:
                raise filled_up(by, left)
        if self._batch_size is not None:
            check_batched_once(self)
        made = _Batches(self, worker, workers)
        made.steps.check(self._run.coming_epoch)
        warns = self._reading.warns and get_worker_info() is None
        return _DatasetIteration(self, made, warns=warns)


class _Batches:
    """The batches, or samples, that an iteration of `dataset` returns in one of several workers."""

    def __init__(self, dataset: StreamingDataset, worker: int, workers: int) -> None:
        self.steps = dataset._steps()
        self._dataset, self._worker, self._workers = dataset, worker, workers
        self._part = dataset._reading.spec.ranks.part

    def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
        self.steps = self._dataset._steps(self._part)  # a state may have changed the dataset
        return self._made(cursor)

    def _made(self, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
        """Yield this worker's tasks up to the epoch's end, with their batches, samples or NOTHING."""
        dataset, steps, worker, workers = self._dataset, self.steps, self._worker, self._workers
        reading, share, position = dataset._reading, dataset._share, cursor.position
        origin = share.origin if share is not None and workers > 1 and position else position
        dataset._share = None
        if get_worker_info() is not None:
            dataset._share = WorkerShare(worker, workers, origin, steps.global_batch_size)
        whole = (task for task in steps.tasks(cursor) if not task.skip)
        tasks = enumerate(whole, (position - origin) // steps.global_batch_size)
        mine = (task for number, task in tasks if number % workers == worker)
        repeats = bool(reading.spec.shuffle) or bool(reading.mixture_phases)
        if get_worker_info() is None or dataset._starts.begun(cursor.epoch, position, repeats=repeats):
            reading.warn_of_costs(steps)
        stand_in = dataset._batch_size is not None and reading.maker.transform is not None
        reader = reading.reader(steps, workers, stand_in=stand_in)
        make = BatchMaker.assembled if dataset._batch_size is not None else _samples
        try:
            for chunk in reader.chunks(mine):
                yield from zip(chunk, make(reading.maker, reader, chunk), strict=True)
        finally:
            reader.close()

    def failed(self, error: BaseException, times: int, cursor: Cursor) -> None:
        return

    def close(self) -> None:
        return


def _samples(maker: BatchMaker, reader: RankReader, chunk: list[Task]) -> Iterator[Any]:
    """Yield the sample of each task, or NOTHING on a rank beyond the tail."""
    try:
        batch = next(reader.read(chunk, joined=True))
    except Exception:
        if len(chunk) == 1:
            raise
        for task in chunk:  # yield the samples before the error first
            yield from _samples(maker, reader, [task])
        return
    samples = transformed(maker.schema, batch, maker.transform)
    for share in reader.shares(chunk):
        yield next(samples) if share else NOTHING


class _DatasetIteration(Iteration):
    """One iteration over a dataset.

    torchdata saves and loads its state besides the dataset's: after an epoch's last batch, the dataset is in the next
    epoch, but a StatefulDataLoader that resumes there is still in the finished iteration.
    """

    def __init__(self, dataset: StreamingDataset, made: _Batches, *, warns: bool) -> None:
        super().__init__(dataset._run, made, "dataset", warns=warns)
        self._unload = dataset._unload

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch of this iteration."""
        return {"epoch": self._epoch if self._taken or self._over else self._run.cursor_of(self).epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the iteration of that epoch: at its end if the dataset is in a later epoch."""
        epoch = state.get("epoch") if isinstance(state, Mapping) and set(state) == {"epoch"} else None
        cursor = self._run.cursor_of(self)
        if type(epoch) is not int or not (epoch == cursor.epoch or (epoch == cursor.epoch - 1 and not cursor.position)):
            self._unload()
            raise StateError("not the state of an iteration", place="epoch", found=shown(state))
        self._epoch, self._over = epoch, epoch < cursor.epoch


def _worker() -> tuple[int, int]:
    """Return this worker's number, and how many there are."""
    info = get_worker_info()
    return (info.id, info.num_workers) if info is not None else (0, 1)
