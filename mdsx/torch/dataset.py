"""StreamingDataset: one rank's part of the global order, as PyTorch's IterableDataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from mdsx.dataset import Dataset, Sample
from mdsx.errors import StateError, UsageError, shown
from mdsx.mixture import Mixture, add_phase
from mdsx.order import ORDER_VERSION, Course, DatasetCourse, MixtureCourse, MixtureOrder, Order, Weight
from mdsx.shards import ColumnChoice, Shards, VerifyCached, View
from mdsx.stream import (
    Batch,
    Batching,
    OrderIdentity,
    Phases,
    Progress,
    RankReader,
    Task,
    warn_of_small_cache,
    warn_of_spread,
)
from mdsx.torch.batches import Collate, assemble, transformed
from mdsx.torch.ranks import rank_and_world_size, ranks_on_this_node

_CONNECTIONS = 32  # about as many as samples of a first batch


class StreamingDataset(IterableDataset[Any]):
    """A dataset in the global order of `(seed, epoch)`, of which each rank gets its part of every global batch.

    Give it to `StreamingDataLoader`. Under PyTorch's own `DataLoader`, give it a `batch_size` (per rank) and the
    loader `batch_size=None`: it then yields whole batches, for any number of workers; call `set_epoch` before each
    epoch, as its workers start anew from this object. Without `batch_size` it yields samples, to one worker at most.

    - `url`: path, `file://`, `s3://`, an `mdsx.Dataset` (which may be a selection), or an `mdsx.Mixture`; `cache`,
      `cache_limit`, `verify_cached`, `connect_timeout`: as for `mdsx.Dataset`; `columns`: the only ones decoded, names
      or a mapping name -> name there.
    - `epoch_samples`: samples of an epoch, where they are not those of the dataset (or as the mixture says): shorter or
      longer epochs, which run on across the dataset and leave nothing out but what `drop_last` drops.
    - `component_column`: name of one more int64 column, the number of a mixture's component that the sample is from.
    - `seed`, `shuffle`, `lanes`, `shuffle_block` (samples; None: about 64 shards): what the order is a function of,
      see format-spec.md, Order. With `shuffle=False` samples come in the order in which they were written.
    - `rank`, `world_size`: default torch.distributed's, else those of the environment (torchrun), else 0 and 1.
    - `transform`: sample (a dict as `mdsx.Dataset` gives it) -> anything that PyTorch can collate.
    - `zero_copy`: hand out `bytes`, `jpeg` and `png` values as read-only memory views of the mapped shards, not as
      copies; a shard of which there are views stays in memory, and in the cache. Lists of such values are copies.
    - `drop_last`: whether the samples that do not fill an epoch's last batch are left out; else they are split over
      the ranks as a shorter batch. Never is a sample padded or repeated.

    `state_dict()` is `(epoch, position)` and what must match to resume; it is the same on every rank, and resumes on
    any number of ranks, workers and batch sizes.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Dataset | Mixture,
        *,
        seed: int = 0,
        shuffle: bool = True,
        lanes: int = 8,
        shuffle_block: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        verify_cached: VerifyCached = "full",
        rank: int | None = None,
        world_size: int | None = None,
        transform: Callable[[Sample], Any] | None = None,
        batch_size: int | None = None,
        drop_last: bool = True,
        columns: ColumnChoice | None = None,
        epoch_samples: int | None = None,
        component_column: str | None = None,
        zero_copy: bool = False,
        connect_timeout: float | None = None,
    ) -> None:
        if connect_timeout is not None and isinstance(url, Dataset | Mixture):
            raise UsageError(f"connect_timeout is given to the mdsx.{type(url).__name__}, not beside it")
        if isinstance(url, Dataset) and (cache, cache_limit, verify_cached) != (None, None, "full"):
            raise UsageError("cache, cache_limit and verify_cached are given to the mdsx.Dataset, not beside it")
        if not isinstance(url, Dataset | Mixture):
            options: Any = {"cache": cache, "cache_limit": cache_limit, "verify_cached": verify_cached}
            shards = Shards(url, connections=_CONNECTIONS, connect_timeout=connect_timeout, **options)
            url = Dataset.of(shards)
        self.dataset = url
        if isinstance(url, Mixture):
            self.view = url.view(columns, component_column, cache, cache_limit, verify_cached)
        else:
            self.view = View([url.part if columns is None else url.part.choose(columns)], component_column)
        self.course = _course(url, self.view, seed, lanes, shuffle_block, shuffle, epoch_samples)
        self._seed, self._shuffle = int(seed), bool(shuffle)
        self.transform = transform
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.zero_copy = zero_copy
        self._ranks = rank_and_world_size(rank, world_size) if rank is not None or world_size is not None else None
        self.progress = Progress()
        self._worker: dict[str, int] | None = None  # in a worker: which batches are this one's
        Batching(self.course.epoch_samples, batch_size or 1, 1, drop_last)  # checks it now, not in the first epoch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ranks": self.ranks}  # a worker process knows nothing of torch.distributed

    @property
    def columns(self) -> Mapping[str, str]:
        """Column names and their types."""
        return {column.name: str(column.type) for column in self.view.schema.columns}

    @property
    def ranks(self) -> tuple[int, int]:
        """(rank, world size)."""
        return self._ranks or rank_and_world_size(None, None)

    @property
    def epoch(self) -> int:
        """The epoch in which the next batch lies."""
        return self.progress.epoch

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank, or samples where it has no batch_size."""
        return self.batching(self.batch_size or 1, self.drop_last).count()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of `epoch`, from its start (or from a position in it that was loaded)."""
        self.progress.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this object stands: counts what `next()` returned."""
        state = self.identity.state(self.progress.epoch, self.progress.position)
        return {**state, "worker": dict(self._worker)} if self._worker else state

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state once `batches` batches were taken from the iteration that `set_epoch` or a loaded state began.

        For PyTorch's DataLoader, whose workers keep to themselves how far they are: it fits any number of ranks and
        workers. Counts samples where this object has no batch_size.
        """
        batching = self.batching(self.batch_size or 1, self.drop_last)
        return self.identity.state(*self.progress.after(batches, batching))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where `state` stands. Raises StateError where it is of another order."""
        epoch, position, phases = self.identity.check(state)
        self.progress.load(epoch, position)
        self.use_phases(phases)
        worker = state.get("worker")
        if worker is not None and set(worker) != {"id", "count", "origin"}:
            raise StateError("not a worker's state", place="worker", found=shown(worker))
        self._worker = dict(worker) if worker is not None else None

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
        """From where this object stands on, the components of its mixture have these proportions.

        A new phase, which the state carries; each component goes on where it stands. On every rank at the same place;
        on a `StreamingDataLoader`'s dataset, call the loader's `reweight`.
        """
        self.reweight_at(proportions, self.progress)

    def reweight_at(self, proportions: Sequence[Weight] | Mapping[str, Weight], progress: Progress) -> None:
        """`reweight` where another object stands."""
        if not isinstance(self.dataset, Mixture):
            raise UsageError("only a mixture can be reweighted", found=type(self.dataset).__name__)
        position = progress.epoch * self.course.epoch_samples + progress.position
        self.use_phases(add_phase(self.phases, position, self.dataset.weights(proportions)))

    def use_phases(self, phases: Phases) -> None:
        """Go on in the order that has these phases."""
        if isinstance(self.course, MixtureCourse) and phases != self.phases:
            self.course = self.course.with_phases(phases)

    def batching(self, batch_size: int, drop_last: bool) -> Batching:
        """How an epoch is cut into batches over the ranks."""
        return Batching(self.course.epoch_samples, batch_size, self.ranks[1], drop_last)

    def reader(self, batching: Batching, workers: int = 0, *, views: bool | None = None) -> RankReader:
        """Reads this rank's part of batches, in this process or in `workers` of them; warns of a cache too small.

        `views`: encoded bytes as memory views, by default as `zero_copy` says.
        """
        here = ranks_on_this_node()
        if self.ranks[0] == 0:
            warn_of_small_cache(self.view, self.course, ranks_here=here, world_size=batching.world_size)
            warn_of_spread(self.course, batching)
        views = self.zero_copy if views is None else views
        return RankReader(
            self.view, self.course, batching, self.ranks[0], processes=here * max(workers, 1), views=views
        )

    def assemble(self, batch: Batch, collate: Collate | None) -> Any:
        """What a training loop gets for `batch`."""
        return assemble(self.view.schema, batch, self.transform, collate)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        if self.batch_size is None and workers > 1:
            raise UsageError(
                f"{workers} workers cannot share single samples",
                hint="use StreamingDataLoader, or StreamingDataset(batch_size=...) with DataLoader(batch_size=None)",
            )
        batching = self.batching(self.batch_size or 1, self.drop_last)
        if self.batch_size is not None:
            check_tail(batching, self.progress.position, per_sample=self.transform is not None)
        epoch, _ = self.progress.begin(batching)
        return _Iteration(self.progress, lambda start: self._iterate(batching, epoch, start, worker, workers))

    def _iterate(self, batching: Batching, epoch: int, position: int, worker: int, workers: int) -> Iterator[Any]:
        origin = self._origin(position, worker, workers)
        tasks = enumerate(batching.tasks(epoch, origin))
        mine = (task for number, task in tasks if number % workers == worker and task.start >= position)
        reader = self.reader(batching, workers)
        try:
            for run in reader.runs(mine):
                for task, results in zip(run, self._results(reader, run), strict=True):
                    self.progress.hand_out(task, batching)
                    yield from results
            if self.progress.epoch == epoch:
                self.progress.end()
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

    def _origin(self, position: int, worker: int, workers: int) -> int:
        """The position from which on batches are dealt to the workers, round-robin."""
        loaded = self._worker if position else None
        if loaded is not None and (loaded["id"], loaded["count"]) != (worker, workers):
            raise StateError(
                "the state is that of one worker of several",
                place="worker",
                found=f"{loaded['id']} of {loaded['count']}",
                expected=f"{worker} of {workers}",
                hint="resume with as many workers, or use StreamingDataLoader, whose state fits any number",
            )
        origin = position if loaded is None else loaded["origin"]
        self._worker = {"id": worker, "count": workers, "origin": origin} if workers > 1 else None
        return origin


class _Iteration(Iterator[Any]):
    """One iteration over a dataset: `make(position)` makes what is left of it.

    After an exception it goes on in the same place. torchdata saves and loads its state beside the dataset's: having
    handed out an epoch's last batch, the dataset stands in the next epoch, but a StatefulDataLoader that is resumed
    there is still in the iteration that has nothing left.
    """

    def __init__(self, progress: Progress, make: Callable[[int], Iterator[Any]]) -> None:
        self._progress, self._epoch, self._make = progress, progress.epoch, make
        self._items = make(progress.position)

    def __next__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise
        except BaseException:
            self._items = self._make(self._progress.position)
            raise

    def state_dict(self) -> dict[str, Any]:
        """The epoch that it is an iteration of."""
        return {"epoch": self._epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be the iteration of that epoch: at its end, where the dataset stands in a later one."""
        if state["epoch"] < self._epoch:
            self._items = iter(())


def check_tail(batching: Batching, position: int, *, per_sample: bool) -> None:
    """Raise UsageError where some rank's last batch would have no samples to transform or collate."""
    if per_sample and 0 < batching.last_size(position) < batching.world_size:
        raise UsageError(
            f"the epoch's last batch has {batching.last_size(position)} samples for {batching.world_size} ranks, and "
            "transform or collate_fn cannot make a batch of 0 samples",
            hint="use drop_last=True, or columns without transform and collate_fn",
        )


def _course(
    dataset: Dataset | Mixture,
    view: View,
    seed: int,
    lanes: int,
    shuffle_block: int | None,
    shuffle: bool,
    epoch_samples: int | None,
) -> Course:
    if epoch_samples is None and isinstance(dataset, Mixture):
        epoch_samples = dataset.epoch_samples
    if not isinstance(dataset, Mixture) or not dataset.phases:
        order = Order(
            view.counts, seed=seed, lanes=lanes if shuffle else 1, shuffle_block=shuffle_block, shuffle=shuffle
        )
        return DatasetCourse(order, epoch_samples)
    if not shuffle:
        raise UsageError(
            "a mixture with proportions is shuffled", hint="for shuffle=False, give its components without proportions"
        )
    counts = [part.subset.counts for part in view.parts]
    (_, weights), *later = dataset.phases
    order_of_all = MixtureOrder(counts, weights, seed=seed, lanes=lanes, shuffle_block=shuffle_block, phases=later)
    return MixtureCourse(order_of_all, view.firsts, epoch_samples)
