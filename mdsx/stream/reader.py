"""Read a rank's batches of the global order as columns: locate, make local, gather.

The reader reads chunks of batches together: it groups their samples by shard, and visits each shard once. It verifies a
mapped shard as a whole when it opens it. If a shard is not local, and will not arrive soon, the reader fetches samples
by range (or the whole shard, if a chunk needs much of it). The first batch never waits: the reader fetches its samples
by range, and starts the prefetch afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, THREADS, Counter, Owner, Scheduler, count
from mdsx.base.work import Chunks, chunk_lengths
from mdsx.errors import CorruptError, UsageError
from mdsx.order import Course, Tick
from mdsx.shards import Columns, Selection, View
from mdsx.stream.damaged import Failure, sound_columns
from mdsx.stream.machine import Pace
from mdsx.stream.prefetch import Prefetcher, prefetcher_of
from mdsx.stream.sample_info import NOTHING_ADDED, SampleInfo
from mdsx.stream.steps import RankGroups, Steps, Task, all_excluded

_WORTH_FETCHING = 4  # fetch a shard whole if a chunk needs a fourth of it
FIRST_READS = 2**14  # ticks of a rank to examine after a jump
_CHUNK_BYTES = 2**24
_CHUNK_BATCHES = 256
_CHUNK_SAMPLES = 512  # at least this many if batches are tiny
_CHUNKS_IN_BLOCK = 8
_CHUNK_LANES = 2**20
_STAND_INS = 64
_FIRST = Tick(0)


class Batch(NamedTuple):
    """One rank's share of a global batch; columns are in storage form (see shards/gather.py).

    Positions are in the epoch, shards in the view, samples are numbered as stored.
    """

    columns: Columns
    positions: NDArray[np.int64]
    shards: NDArray[np.int64]
    samples: NDArray[np.int64]
    stand_in: bool = False  # the rank has no sample: this is another rank's
    damaged: Sequence[Failure] = ()  # samples left out
    groups: Sequence[RankGroups] = ()  # of these samples, for each task; empty for batches of samples
    info: str | None = None  # the column with each sample's origin (see sample_info.py)
    seeds: NDArray[np.uint64] | None = None  # of each sample, for a transform that takes a generator
    bucket: Any = None  # in batches of one shape: the value of "bucket"


class _Runtime:
    """The state of one process."""

    def __init__(self, prefetcher: Prefetcher | None, scheduler: Scheduler) -> None:
        self.owner = Owner()
        self.prefetcher = prefetcher
        self.begun = False  # the first chunk was found
        self.damaged = set[int]()  # shards to read sample by sample
        self.pool = scheduler.share(REQUESTS, iteration=True)


class RankReader:
    """Reads the batches of `rank`. `processes`: how many processes of this node read through the same cache; `views`:
    return encoded bytes as memory views of the shards; `stored`: return variable-size columns as StoredValues;
    `stand_in`: read a batch's first sample if the rank has none; `skip`: `read_each` leaves out damaged samples;
    `info`: what to add to samples; `scheduler`: the clock and threads to use."""

    def __init__(
        self,
        view: View,
        course: Course,
        steps: Steps,
        rank: int,
        *,
        pace: Pace | None = None,
        processes: int = 1,
        views: bool = False,
        stored: bool = False,
        stand_in: bool = False,
        skip: bool = False,
        info: SampleInfo | None = None,
        scheduler: Scheduler = THREADS,
    ) -> None:
        self.view = view
        self.course = course
        self.steps = steps
        self.rank = rank
        self._pace = Pace() if pace is None else pace
        self._processes = processes
        self._views, self._stored = views, stored
        self._stand_in = stand_in
        self._skip = skip
        self._info = info
        self._scheduler = scheduler
        self._runtime_or_none: _Runtime | None = None
        self._looked_at = -1  # the first tick of the epoch that `_look_ahead` located last

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_runtime_or_none": None}

    def prepare(self, start: Tick) -> None:
        """Compute what reading from `start` on needs for all shards. Processes forked from this one then share it."""
        view = self.view
        if view.cache_limit is not None and len(view.counts):
            _ = view.mean_sizes, view.cached_sizes, view.names
            self.course.prepare(start)

    def read(self, tasks: Sequence[Task], *, joined: bool = False) -> Iterator[Batch]:
        """Yield the rank's share of each of `tasks` of one epoch, read as one chunk; with `joined`, one batch."""
        ticks, counts, located = self.steps.rank_share(tasks, self.course, self.rank)
        start, stop, done = tasks[0].start, max(task.stop for task in tasks), tasks[-1].done
        lacking = np.flatnonzero(counts == 0) if self._stand_in else np.zeros(0, np.int64)
        if len(lacking):
            spares = [self._spare(tasks[number]) for number in lacking.tolist()]
            ticks = np.insert(ticks, np.cumsum(counts)[lacking], spares)
            counts[lacking] = 1
            located = None
        stand_ins = iter(np.isin(np.arange(len(counts)), lacking).tolist())
        shards, samples = self._locate(ticks) if located is None else located
        added = NOTHING_ADDED if self._info is None else self._info.of(ticks, shards, samples)
        runtime = self._runtime(start)
        prefetcher, first = runtime.prefetcher, not runtime.begun
        wanted = [] if prefetcher is None else np.unique(self.view.expand(shards, samples)[0]).tolist()
        if prefetcher is not None and not first:
            prefetcher.reading(start, stop, wanted, self._first_reads)
        sizes = [len(ticks)] if joined else counts.tolist()
        places, found = self._select(runtime, shards, samples)
        if prefetcher is not None and first:
            prefetcher.reading(start, stop, wanted, self._first_reads)
        runtime.begun = True
        positions = ticks - self._epoch_start(start)
        groups = [[task.groups] if task.groups is not None else [] for task in tasks]
        if joined:
            groups = [[each for of_task in groups for each in of_task]]
        edges = pairwise(accumulate(sizes, initial=0))
        try:
            gathered = self.view.gather(found, places, sizes, views=self._views, stored=self._stored, seeds=added.seeds)
            for columns, (low, high), steps in zip(gathered, edges, groups, strict=True):
                yield Batch(
                    columns,
                    positions[low:high],
                    shards[low:high],
                    samples[low:high],
                    next(stand_ins),
                    groups=steps,
                    **added.to(columns, slice(low, high)),
                )
        finally:  # also if the caller stops at the last batch
            del found  # selections hold leases
            self._let_go(runtime, done, wanted)
            self._look_ahead(stop, len(tasks))

    def read_each(self, tasks: Sequence[Task]) -> Iterator[Batch]:
        """As `read`, but yield the batches before a failing one, and then raise its error.

        With `skip`, a damaged sample is left out instead of raising an error.
        """
        done = 0
        try:
            for batch in self.read(tasks):
                yield batch
                done += 1
            return
        except Exception as error:
            damaged = self._skip and isinstance(error, CorruptError) and not done
            if len(tasks) == 1 and not damaged:
                raise
        if len(tasks) == 1:
            yield self.read_undamaged(tasks[0])
            return
        for task in tasks[done:]:
            yield from self.read_each([task])

    def read_undamaged(self, task: Task) -> Batch:
        """Return the rank's share of `task` without damaged samples. Raise the errors of whole shards."""
        share = self.steps.rank_share([task], self.course, self.rank)
        stand_in = self._stand_in and not share.counts[0]
        groups = [task.groups] if task.groups is not None and not stand_in else []
        ticks, located = (np.array([self._spare(task)]), None) if stand_in else (share.ticks, share.located)
        return self._read_undamaged(task, ticks, located, stand_in=stand_in, groups=groups)

    def stand_ins(self, task: Task) -> Iterator[Batch]:
        """Yield single undamaged samples of any rank, a few more than a batch has: from the start of `task` on, and
        after the epoch's end from its start."""
        total, begin = self.course.epoch_samples, self._epoch_start(task.start)
        for number in range(min(self.steps.step_samples + _STAND_INS, total)):
            tick = begin + (task.start - begin + number) % total
            if not self._is_read(np.array([tick]))[0]:
                continue
            batch = self._read_undamaged(task, np.array([tick]), stand_in=True)
            if not batch.damaged:
                yield batch

    def _read_undamaged(
        self,
        task: Task,
        ticks: NDArray[np.int64],
        located: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        *,
        stand_in: bool,
        groups: Sequence[RankGroups] = (),
    ) -> Batch:
        """Return the undamaged samples at `ticks`, which are `located` if that was planned, while `task` is read."""
        runtime = self._runtime(task.start)
        shards, samples = self._locate(ticks) if located is None else located
        added = NOTHING_ADDED if self._info is None else self._info.of(ticks, shards, samples)
        positions = ticks - self._epoch_start(task.start)
        try:
            columns, kept, wrong = sound_columns(
                self.view,
                shards,
                samples,
                self._select_each,
                views=self._views,
                stored=self._stored,
                seeds=added.seeds,
            )
        finally:
            self._let_go(runtime, task.done, np.unique(self.view.expand(shards, samples)[0]).tolist())
        damaged = [
            Failure(int(positions[place]), int(shards[place]), int(samples[place]), wrong[place])
            for place in sorted(wrong)
            if not groups or groups[0].firsts[place] == 0  # of a split sample, its first piece counts
        ]
        groups = [each.kept(kept) for each in groups]
        of_kept = added.to(columns, kept)
        return Batch(columns, positions[kept], shards[kept], samples[kept], stand_in, damaged, groups, **of_kept)

    def _is_read(self, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each tick whether its sample is read, not excluded."""
        excluded = self.course.excluded
        return np.ones(len(ticks), np.bool_) if excluded is None else excluded.kept(ticks, *self.course.locate(ticks))

    def _spare(self, task: Task) -> Tick:
        """Return the first tick from a task's start on whose sample is not excluded. Raise UsageError if an epoch has
        none."""
        if self.course.excluded is None:
            return task.start
        for start in range(task.start, task.start + self.course.epoch_samples, _STAND_INS):
            read = np.flatnonzero(self._is_read(np.arange(start, start + _STAND_INS)))
            if len(read):
                return Tick(start + int(read[0]))
        raise all_excluded()

    def _epoch_start(self, tick: Tick) -> int:
        """Return the first tick of the epoch of `tick`."""
        return tick - tick % self.course.epoch_samples

    def _locate(self, ticks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shards of samples, and their stored numbers there."""
        shards, samples = self.course.locate(ticks)
        return shards, self.view.stored(shards, samples)

    def _select_each(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        runtime = self._runtime()
        if shard not in runtime.damaged:
            try:
                ((_, found),) = self._read(runtime, [(shard, samples)])
                return [*found.each()]
            except CorruptError:
                runtime.damaged.add(shard)
        return self.view.select_undamaged(shard, samples)

    def shares(self, tasks: Iterable[Task]) -> list[int]:
        """Return how many samples the rank gets in each task."""
        if self.course.excluded is None:
            return [self.steps.share(task, self.rank) for task in tasks]
        counts: list[int] = self.steps.rank_share(list(tasks), self.course, self.rank).counts.tolist()
        return counts

    def chunks(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """Yield `tasks` in chunks to read together. Chunks grow from one task, so that the first batch comes early."""
        return Chunks(tasks, chunk_lengths(1, self.longest_chunk))

    @property
    def longest_chunk(self) -> int:
        """Return the most batches to read together: some megabytes, or hundreds."""
        sample = self.view.schema.row_size if self._views else self.view.sample_bytes
        step = self.steps.step_samples
        size = max(step // self.steps.world_size, 1)
        batches = min(_CHUNK_BYTES // max(sample * size, 1), _CHUNK_BATCHES)
        batches = max(batches, min(_CHUNK_BYTES // max(sample, 1), _CHUNK_SAMPLES) // size)
        if self.view.cache_limit is not None:  # prefetch continues and shards close only after a chunk
            batches = min(batches, self.course.shuffle_block // (_CHUNKS_IN_BLOCK * step))
        batches = min(batches, _CHUNK_LANES // self.course.lanes)  # the time to compute ticks grows with the lanes
        return max(int(batches), 1)

    def close(self) -> None:
        """End the threads of this process and close its shards."""
        runtime, self._runtime_or_none = self._runtime_or_none, None
        if runtime is not None and runtime.owner.here:
            if runtime.prefetcher is not None:
                runtime.prefetcher.close()
            runtime.pool.shutdown(wait=False)

    def _runtime(self, start: Tick = _FIRST) -> _Runtime:
        """`start`: the tick that is read first."""
        runtime = self._runtime_or_none
        if runtime is None or not runtime.owner.here:
            prefetcher = prefetcher_of(
                self.view,
                self.course,
                self.steps,
                start=start,
                rank=self.rank,
                processes=self._processes,
                pace=self._pace,
                scheduler=self._scheduler,
            )
            runtime = self._runtime_or_none = _Runtime(prefetcher, self._scheduler)
        return runtime

    def _first_reads(self, start: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """See ShardMachine.first_reads."""
        size, node, ranks, epoch = self.steps.period, self.steps.node, self.steps.world_size, self.course.epoch_samples
        batches = max(FIRST_READS * ranks // size, 1)
        end = (start // epoch + 1) * epoch
        starts = np.arange(start, min(start + batches * size, end), size)
        stops = np.minimum(starts + size, end)
        ticks, counts = self.course.rank_ticks(starts, stops, self.rank // node, ranks // node)
        shards, places = self.view.drawn(*self.course.locate(ticks))
        shards, firsts = np.unique(shards, return_index=True)
        return np.repeat(starts, counts)[places[firsts]], shards, int(stops.max(initial=start))

    def _look_ahead(self, stop: int, batches: int) -> None:
        """Locate the first samples of each lane in the next epoch if this reader's next chunk, of as many batches, may
        begin in it: computing an epoch's order takes longer than all else that its first batches need."""
        course, steps = self.course, self.steps
        start = ((stop - 1) // course.epoch_samples + 1) * course.epoch_samples
        if start == self._looked_at or stop + batches * self._processes * steps.step_samples < start:
            return
        self._looked_at = start
        end = start + course.epoch_samples
        each_lane = max(min(course.lanes, FIRST_READS), steps.period)
        starts = np.arange(start, min(start + each_lane, end), steps.period)
        stops = np.minimum(starts + steps.period, end)
        with suppress(UsageError):  # the next epoch raises it
            course.locate(course.rank_ticks(starts, stops, self.rank // steps.node, steps.world_size // steps.node)[0])

    def _select(
        self, runtime: _Runtime, shards: NDArray[np.int64], samples: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[tuple[int, Selection]]]:
        """Return the places in `samples` of all selected samples, and each shard with its selection."""
        places, groups = self.view.by_shard(shards, samples)
        count(Counter.READ_SAMPLES, len(shards))
        return places, self._read(runtime, groups)

    def _read(self, runtime: _Runtime, groups: Sequence[tuple[int, NDArray[np.int64]]]) -> list[tuple[int, Selection]]:
        """Return each shard with the selection of its group of samples."""
        view = self.view
        if runtime.damaged and (known := [shard for shard, _ in groups if shard in runtime.damaged]):
            raise CorruptError("the shard was found to be damaged before", file=view.file(known[0]))
        missing = [shard for shard, _ in groups if not view.open(shard, whole=True)]
        absent, sizes = set(missing), {shard: len(group) for shard, group in groups}
        size_of = view.mean_sizes.item
        if missing and runtime.prefetcher is not None:
            size = sum(sizes[shard] * size_of(shard) for shard in missing)
            if runtime.begun:
                runtime.prefetcher.wait_for(missing, size)
            else:
                runtime.prefetcher.ranged(size)
        absent -= {shard for shard in missing if self._open(runtime.prefetcher, shard, sizes[shard])}
        asked = [(shard, group) for shard, group in groups if shard in absent]
        fetched = runtime.pool.map(lambda pair: view.select(*pair), asked)  # starts all of them now
        found = [(shard, next(fetched) if shard in absent else view.select(shard, group)) for shard, group in groups]
        count(Counter.READ_BYTES, round(sum(number * size_of(shard) for shard, number in sizes.items())))
        if runtime.prefetcher is not None:
            cached = [shard for shard in sizes if shard not in absent and view.cached(shard)]
            count(Counter.CACHE_BYTES, round(sum(sizes[shard] * size_of(shard) for shard in cached)))
        return found

    def _open(self, prefetcher: Prefetcher | None, shard: int, wanted: int) -> bool:
        view = self.view
        if view.open(shard, whole=True):
            return True
        if not view.cached(shard) or wanted * _WORTH_FETCHING < view.shard_counts[shard]:
            return False
        return view.fetch(shard, needs=prefetcher.needs() if prefetcher is not None else {}) is None

    def _let_go(self, runtime: _Runtime, stop: int, wanted: list[int]) -> None:
        """Note that everything before `stop` was returned: `wanted`, and shards no longer needed, may be closed."""
        if runtime.prefetcher is not None:
            runtime.prefetcher.consumed(stop, [shard for shard in wanted if self.view.is_open(shard)])
