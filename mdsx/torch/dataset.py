"""StreamingDataset: one rank's part of the global order, as PyTorch's IterableDataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakSet

import numpy as np
import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from mdsx.dataset import Dataset, Sample
from mdsx.errors import CorruptError, StateError, UsageError, shown
from mdsx.mixture import Mixture, add_phase
from mdsx.mosaicml import STREAMING_DATASET, explain
from mdsx.order import ORDER_VERSION, Course, DatasetCourse, MixtureCourse, MixtureOrder, Order, Shuffle, Weight
from mdsx.shards import ColumnChoice, Shards, View
from mdsx.storage.cache import Cache, CacheLike
from mdsx.stream import (
    Batch,
    Batching,
    OrderIdentity,
    Pace,
    Phases,
    RankReader,
    Run,
    Task,
    WorkerShare,
    warn_of_left,
    warn_of_small_cache,
    warn_of_spread,
)
from mdsx.torch.assembly import Collate, assemble, check_empty, transformed
from mdsx.torch.ranks import rank_and_world_size, ranks_on_this_node
from mdsx.torch.skipping import OnError, assemble_sound
from mdsx.torch.uneven import Uneven
from mdsx.torch.worker_starts import WorkerStarts, before_each_fork, check_batched_once, find_loader, spawning
from mdsx.warn import leave_warnings_to_others

_CONNECTIONS = 32  # about as many as samples of a first batch


class StreamingDataset(IterableDataset[Any]):
    """A dataset in the global order of `(seed, epoch)`. Each rank gets its part of every global batch.

        data = StreamingDataset("s3://bucket/corpus", seed=7, cache=mdsx.Cache("cache", limit="200GB"))
        loader = StreamingDataLoader(data, batch_size=32, num_workers=2)

    Use it with `StreamingDataLoader`. With PyTorch's own `DataLoader`, give this object a `batch_size` and the loader
    `batch_size=None`, and call `set_epoch` before each epoch. Without a `batch_size` it yields single samples, to one
    worker at most.

    A `StreamingDataLoader` has a position of its own. While one reads this dataset, `state_dict`, `load_state_dict`,
    `state_after`, `set_epoch`, `resume` and `reweight` raise a UsageError here. A copy of this object is independent of
    it, at the same position.

    Args:
        dataset: A URL (path, `file://...`, `s3://bucket/prefix`), an `mdsx.Dataset`, which may be a selection, or an
            `mdsx.Mixture`.
        columns: The only columns to decode: their names, or a mapping from new names to those in the dataset.
        seed: The seed of the order, an unsigned 64-bit integer.
        shuffle: True, an `mdsx.Shuffle`, or False: samples then come in the order in which they were written.
        epoch_samples: The samples of an epoch, if not those of the dataset. Shorter and longer epochs continue through
            the dataset, and leave out only what `drop_last` drops.
        cache: An `mdsx.Cache`, or its directory.
        rank: This process among `world_size`. The default is torch.distributed's, or else the environment's (torchrun),
            or else 0.
        world_size: The number of ranks; default as for `rank`, or else 1.
        transform: A function from a sample, a dict as `mdsx.Dataset` returns it, to anything. `mdsx.torch.collate`
            joins what it returns.
        zero_copy: Whether `bytes`, `jpeg` and `png` values are read-only memory views of the mapped shards instead of
            copies. A shard with views stays in memory, and in the cache. Lists of such values are copies.
        batch_size: Samples per rank and batch, for PyTorch's own DataLoader.
        drop_last: Whether samples that do not fill an epoch's last batch are left out, the default. Otherwise they are
            split over the ranks as a shorter batch. A `StreamingDataLoader` must have the same value, if it is given
            here.

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
        rank: int | None = None,
        world_size: int | None = None,
        transform: Callable[[Sample], Any] | None = None,
        zero_copy: bool = False,
        batch_size: int | None = None,
        drop_last: bool | None = None,
    ) -> None:
        if not isinstance(shuffle, bool | Shuffle):
            raise UsageError("shuffle must be True, False or an mdsx.Shuffle", found=shown(shuffle))
        if isinstance(dataset, Dataset) and cache is not None:
            raise UsageError("the mdsx.Dataset has a cache already", hint="give cache= to the mdsx.Dataset")
        if not isinstance(dataset, Dataset | Mixture):
            dataset = Dataset.of(Shards(dataset, cache=Cache.of(cache), connections=_CONNECTIONS))
        self.dataset = dataset
        if isinstance(dataset, Mixture):
            self.view = dataset.view(columns, cache)
        else:
            self.view = View([dataset.excerpt if columns is None else dataset.excerpt.choose(columns)])
        self.course = _course(dataset, self.view, seed, shuffle, epoch_samples)
        if isinstance(seed, bool):
            raise UsageError("seed must be an integer", found=shown(seed))
        self._seed, self._shuffle = int(seed), bool(shuffle)
        self.transform = transform
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.zero_copy = zero_copy
        self._ranks = rank_and_world_size(rank, world_size) if rank is not None or world_size is not None else None
        self.run = Run(shuffled=self._shuffle)
        self._pace = Pace()
        self._share: WorkerShare | None = None  # in a worker: which batches are this one's
        self._loaders: WeakSet[Any] = WeakSet()  # those that read this dataset
        self._starts = WorkerStarts()
        self.uneven: Uneven = "empty"
        self.on_error: OnError = "raise"
        # It checks the size now, not in the first epoch.
        Batching(self.course.epoch_samples, 1 if batch_size is None else batch_size, 1, self._drops_last)

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy: it has a run of its own, at the same position, and no loader."""
        ranks = self._ranks
        if ranks is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            ranks = self.ranks  # a worker process knows nothing of torch.distributed, but has the same environment
        if spawning():
            _look_for_loader()
        starts = WorkerStarts(seen=spawning())
        return {**self.__dict__, "run": copy(self.run), "_ranks": ranks, "_loaders": None, "_starts": starts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _loaders=WeakSet())

    def detached(self) -> StreamingDataset:
        """The same samples in the same order, with a run of its own: what a loader reads."""
        found = copy(self)
        found._ranks, found._share = self._ranks, None
        found._pace = Pace()
        return found

    def read_by(self, loader: object) -> None:
        """As long as `loader` lives, it has the position, and this object refuses to say or move one."""
        self._loaders.add(loader)

    def _ask_for(self, call: str) -> None:
        """Raise UsageError where a loader has the position that `call` is about."""
        if len(self._loaders):
            raise UsageError(
                f"a StreamingDataLoader reads this dataset, and has the position: {call} of the dataset has no effect "
                "on it",
                hint=f"call loader.{call}" if call != "state_after()" else "call loader.state_dict()",
            )

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns' names and types."""
        return {column.name: str(column.type) for column in self.view.schema.columns}

    @property
    def ranks(self) -> tuple[int, int]:
        """Return (rank, world size)."""
        return self._ranks or rank_and_world_size(None, None)

    @property
    def epoch(self) -> int:
        """Return the epoch of the next batch."""
        return self.run.coming[0]

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank, or of samples without a batch_size."""
        return self.batching(self.batch_size or 1, self._drops_last).count()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration `epoch` from its start. Change nothing if that epoch comes next anyway."""
        self._ask_for("set_epoch()")
        self.run.set_epoch(epoch)
        self._starts.moved()

    def resume(self) -> None:
        """Make the next iteration take the rest of the epoch that was left. Change nothing if none was."""
        self._ask_for("resume()")
        self.run.resume()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after what `next()` returned: loading it gives the rest of the epoch."""
        self._ask_for("state_dict()")
        return self._state()

    def _state(self) -> dict[str, Any]:
        state = self.identity.state(self.run.epoch, self.run.position)
        return {**state, "worker": self._share.state(self.run.position)} if self._share else state

    def state_after(self, batches: int) -> dict[str, Any]:
        """Return the state after `batches` batches of the iteration that `set_epoch` or a loaded state began.

        It is for PyTorch's DataLoader, whose workers do not say how far they are, and fits any number of ranks and
        workers. Without a batch_size it counts samples.
        """
        self._ask_for("state_after()")
        batching = self.batching(self.batch_size or 1, self._drops_last)
        return self.identity.state(*self.run.after(batches, batching))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue at `state`.

        Raises:
            StateError: The state is of another order, or of a worker process that this one does not replace. Nothing
                changes.
        """
        self._ask_for("load_state_dict()")
        epoch, position, phases = self.identity.check(state, _worker())
        share = self._checked_share(WorkerShare.parse(state["worker"], position)) if "worker" in state else None
        self.use_phases(phases)  # first, as it may refuse them
        self.run.load(epoch, position)
        self._starts.moved()
        self._share = share

    @property
    def identity(self) -> OrderIdentity:
        """What the order is a function of, beside epoch and position."""
        course = self.course
        return OrderIdentity(
            order_version=ORDER_VERSION,
            seed=self._seed,
            lanes=course.lanes,
            shuffle_block=course.shuffle_block,
            shuffle=self._shuffle,
            fingerprint=self.dataset.fingerprint,
            epoch_samples=course.epoch_samples,
            samples=course.samples,
            phases=self.phases,
        )

    @property
    def phases(self) -> Phases:
        """A mixture's weights, with the position (since the run began) from which on each holds; else none."""
        return self.course.order.phases if isinstance(self.course, MixtureCourse) else ()

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight]) -> None:
        """Change the proportions of the mixture's components, from the current position on.

        This is a new phase, which the state holds; each component continues where it is. Call it on every rank at the
        same position. For the dataset of a `StreamingDataLoader`, call the loader's `reweight`.

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
        if not isinstance(self.dataset, Mixture):
            raise UsageError("only a mixture can be reweighted", found=type(self.dataset).__name__)
        position = self.run.epoch * self.course.epoch_samples + self.run.position
        self.use_phases(add_phase(self.phases, position, self.dataset.weights(proportions)))

    def use_phases(self, phases: Phases) -> None:
        """Go on in the order that has these phases."""
        if isinstance(self.course, MixtureCourse) and phases != self.phases:
            self.course = self.course.with_phases(phases)

    @property
    def _drops_last(self) -> bool:
        return self.drop_last is not False

    def batching(self, batch_size: int, drop_last: bool) -> Batching:
        """How an epoch is cut into batches over the ranks."""
        return Batching(self.course.epoch_samples, batch_size, self.ranks[1], drop_last)

    def known_batching(self, batch_size: int, drop_last: bool) -> Batching | None:
        """`batching` where the ranks are known already, else None."""
        try:
            return self.batching(batch_size, drop_last)
        except UsageError:  # the environment says how many ranks there are, and not which one this is
            return None

    def reader(
        self, batching: Batching, workers: int = 0, *, views: bool | None = None, stand_in: bool = False
    ) -> RankReader:
        """Reads this rank's part of batches, in this process or in `workers` of them; warns of a cache too small.

        `views`: encoded bytes as memory views, by default as `zero_copy` says.
        """
        if get_worker_info() is None or not self._starts.seen:  # else the main process has warned
            self.warn_of_costs(batching)
        here = ranks_on_this_node()
        views = self.zero_copy if views is None else views
        processes = here * max(workers, 1)
        return RankReader(
            self.view,
            self.course,
            batching,
            self.ranks[0],
            pace=self._pace,
            processes=processes,
            views=views,
            stand_in=stand_in,
            skip=self.on_error == "skip",
        )

    def warn_of_costs(self, batching: Batching) -> None:
        """Warn, on rank 0, where the cache is too small, or the batches do not fit the lanes."""
        if self.ranks[0] == 0:
            warn_of_small_cache(self.view, self.course, ranks_here=ranks_on_this_node(), world_size=batching.world_size)
            warn_of_spread(self.course, batching)

    def started_by(self, iterator: Any, *, resumed: bool) -> None:
        """PyTorch's DataLoader starts a worker from this object, for its `iterator`."""
        repeats = not resumed and (self._shuffle or bool(self.phases))
        if self._starts.started(iterator, repeats=repeats):
            self.warn_of_costs(self.batching(self.batch_size or 1, self._drops_last))

    def assemble(self, batch: Batch, collate: Collate | None) -> Any:
        """What a training loop gets for `batch`."""
        return assemble(self.view.schema, batch, self.transform, collate, self.uneven)

    def assembled(self, reader: RankReader, run: list[Task], collate: Collate | None) -> Iterator[Any]:
        """What a loader gets for each task of a run: a batch, or Short."""
        if self.on_error == "raise":
            yield from (self.assemble(batch, collate) for batch in reader.read_each(run))
            return
        for task, batch in zip(run, reader.read_each(run), strict=True):
            stand_ins = partial(reader.stand_ins, task)
            yield assemble_sound(self.view.schema, batch, self.transform, collate, self.uneven, stand_ins)

    def check_empty(self, position: int, collate: Collate) -> None:
        """Raise UsageError where `collate` makes batches that cannot be cut to 0 samples, as the one at `position`."""
        positions = np.array([self.run.coming[0] * self.course.epoch_samples + position])
        shards, samples = self.course.locate(positions)
        samples = self.view.stored(shards, samples)
        places, groups = self.view.by_shard(shards, samples)
        try:
            found = [(shard, self.view.select(shard, group)) for shard, group in groups]
            (columns,) = self.view.gather(found, places, [1])
        except CorruptError:
            if self.on_error == "skip":  # what comes of it is seen at its batch
                return
            raise
        check_empty(self.view.schema, Batch(columns, positions, shards, samples, True), self.transform, collate)

    def __iter__(self) -> Iterator[Any]:
        worker, workers = _worker()
        if worker > 0:
            leave_warnings_to_others()
        if self.batch_size is None and workers > 1:
            raise UsageError(
                f"{workers} workers cannot share single samples",
                hint="use StreamingDataLoader, or StreamingDataset(batch_size=...) with DataLoader(batch_size=None)",
            )
        if self.batch_size is not None:
            check_batched_once(self)
        batching = self.batching(self.batch_size or 1, self._drops_last)
        self.run.check(batching)
        return _Iteration(
            self.run,
            batching,
            self.ranks[0],
            lambda epoch, position: self._iterate(batching, epoch, position, worker, workers),
        )

    def _iterate(
        self, batching: Batching, epoch: int, position: int, worker: int, workers: int
    ) -> Iterator[tuple[Task, list[Any]]]:
        """The tasks from a position to the epoch's end, each with what it yields."""
        origin = self._share.origin if self._share is not None and workers > 1 and position else position
        self._share = None
        if get_worker_info() is not None:
            self._share = WorkerShare(worker, workers, origin, batching.global_batch)
        tasks = enumerate(batching.tasks(epoch, position), (position - origin) // batching.global_batch)
        mine = (task for number, task in tasks if number % workers == worker)
        stand_in = self.batch_size is not None and self.transform is not None
        reader = self.reader(batching, workers, stand_in=stand_in)
        try:
            for run in reader.runs(mine):
                yield from zip(run, self._results(reader, run), strict=True)
        finally:
            reader.close()

    def _results(self, reader: RankReader, run: list[Task]) -> Iterator[list[Any]]:
        """What each task of a run yields: its batch; or one sample, or none on a rank beyond the tail."""
        if self.batch_size is not None:
            yield from ([self.assemble(batch, None)] for batch in reader.read_each(run))
            return
        try:
            batch = next(reader.read(run, joined=True))
        except Exception:
            if len(run) == 1:
                raise
            for task in run:  # the samples before the error shall come first
                yield from self._results(reader, [task])
            return
        samples = transformed(self.view.schema, batch, self.transform)
        for share in reader.shares(run):
            yield list(islice(samples, share))

    def _checked_share(self, share: WorkerShare) -> WorkerShare:
        """Raise StateError where the batches of several workers have another size than those in the state."""
        batching = self.batching(self.batch_size or 1, self._drops_last)
        if share.count > 1 and share.global_batch != batching.global_batch:
            raise StateError(
                "the state is that of one of several workers, and fits no other batch size * world size",
                place="worker",
                found=f"batches of {share.global_batch} samples over all ranks",
                expected=f"{batching.batch_size} * {batching.world_size}",
                hint=f"resume with batch_size * world size = {share.global_batch} until the epoch ends, or use "
                "StreamingDataLoader, whose state fits any",
            )
        return share


class _Iteration(Iterator[Any]):
    """One iteration over a dataset: `make(epoch, position)` makes what is left of that epoch.

    After an exception it goes on in the same place. torchdata saves and loads its state beside the dataset's: having
    handed out an epoch's last batch, the dataset stands in the next epoch, but a StatefulDataLoader that is resumed
    there is still in the iteration that has nothing left.
    """

    def __init__(
        self, run: Run, batching: Batching, rank: int, make: Callable[[int, int], Iterator[tuple[Task, list[Any]]]]
    ) -> None:
        self._run, self._batching, self._rank, self._make = run, batching, rank, make
        self._items: Iterator[tuple[Task, list[Any]]] | None = None
        self._epoch = -1  # of the items
        self._taken = self._over = False

    def __next__(self) -> Any:
        run, taken = self._run, self._taken
        if taken and not self._over and not run.has(self):
            raise UsageError("this iteration was left: another one was begun, or a state loaded, on its dataset")
        while not self._over:
            before = run.mark()
            try:
                if self._items is None:
                    self._items = self._begin()
                task, results = next(self._items)
                self._taken, self._over = True, not run.hand_out(self, task, self._batching)
                if results:
                    return results[0]
            except StopIteration:
                self._over = True
                if run.place(self)[0] == self._epoch:
                    run.end(self._epoch)
            except BaseException as error:
                self._items, self._taken, self._over = None, taken, False
                run.back_to(before)
                if isinstance(error, KeyboardInterrupt):
                    run.quit(self)
                else:
                    run.failed(self)
                raise
        self._items = None
        raise StopIteration

    def _begin(self) -> Iterator[tuple[Task, list[Any]]]:
        left = self._run.left_before(self)
        if left is not None and get_worker_info() is None:  # how far a worker is ahead is not for its user to know
            warn_of_left(left, self._batching, self._rank, "dataset")
        self._epoch, position = self._run.place(self)
        return self._make(self._epoch, position)

    def state_dict(self) -> dict[str, Any]:
        """The epoch that it is an iteration of."""
        return {"epoch": self._epoch if self._taken else self._run.place(self)[0]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be the iteration of that epoch: at its end, where the dataset stands in a later one."""
        epoch = state.get("epoch") if isinstance(state, Mapping) and set(state) == {"epoch"} else None
        place, _ = self._run.place(self)
        if type(epoch) is not int or epoch not in (place - 1, place):
            raise StateError("not the state of an iteration", place="epoch", found=shown(state))
        self._over = epoch < place


def _worker() -> tuple[int, int]:
    """Which of how many worker processes of PyTorch's this is."""
    info = get_worker_info()
    return (info.id, info.num_workers) if info is not None else (0, 1)


def _course(
    dataset: Dataset | Mixture,
    view: View,
    seed: int,
    shuffle: bool | Shuffle,
    epoch_samples: int | None,
) -> Course:
    chosen = shuffle if isinstance(shuffle, Shuffle) else Shuffle()
    lanes, shuffle_block = chosen.lanes, chosen.shuffle_block
    if epoch_samples is None and isinstance(dataset, Mixture):
        epoch_samples = dataset.epoch_samples
    if not isinstance(dataset, Mixture) or not dataset.phases:
        order = Order(view.counts, seed=seed, shuffle=bool(shuffle), lanes=lanes, shuffle_block=shuffle_block)
        return DatasetCourse(order, epoch_samples)
    if not shuffle:
        raise UsageError(
            "a mixture with proportions is shuffled", hint="for shuffle=False, give its components without proportions"
        )
    counts = [excerpt.subset.counts for excerpt in view.excerpts]
    (_, weights), *later = dataset.phases
    order_of_all = MixtureOrder(counts, weights, seed=seed, lanes=lanes, shuffle_block=shuffle_block, phases=later)
    return MixtureCourse(order_of_all, view.firsts, epoch_samples)


def _look_for_loader() -> None:
    """Tell a dataset of a DataLoader that starts workers from it now."""
    found = find_loader(lambda owned: isinstance(owned, StreamingDataset))
    if found is not None:
        iterator, dataset, resumed = found
        dataset.started_by(iterator, resumed=resumed)


before_each_fork(_look_for_loader)
