"""What a run reads, and in which order: an opened RunSpec, with the changes made by a state or `reweight`.

It has no cursor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Counters
from mdsx.base.warn import warn
from mdsx.datasets import Dataset, Mixture, as_in, excerpt_of, renumbered, view_of, weights_of, with_excerpt
from mdsx.errors import CorruptError, ForbiddenError, MdsxError, MissingError, StateError, UsageError, shown
from mdsx.loader.assembly import BUCKET, check_empty
from mdsx.loader.collation import VALID
from mdsx.loader.making import BatchMaker
from mdsx.loader.run_plan import GIVE_PROPORTIONS, NO_PROPORTIONS, RunPhase, RunPlan, check_not_cut, followed
from mdsx.loader.spec import RunSpec, course_of
from mdsx.order import (
    ORDER_VERSION,
    AllSamples,
    Course,
    MixtureCourse,
    Phases,
    Shuffle,
    Tick,
    Weight,
    add_phase,
    shared_lanes,
    small_cache,
)
from mdsx.shards import View
from mdsx.stream import (
    NOTHING_ADDED,
    Batch,
    Batcher,
    Batching,
    Cursor,
    OrderIdentity,
    Pace,
    Phase,
    RankReader,
    SampleInfo,
    Steps,
    Task,
    shuffle_of,
    step_end,
)

_log = logging.getLogger("mdsx")

_TOGETHER_BYTES = 2**21
_TOGETHER = 32
_COUNTED = 2**18  # ticks looked up at once


@dataclass(frozen=True, eq=False)
class Reading:
    """The samples of a run in their present order. A state or `reweight` returns another Reading."""

    spec: RunSpec
    view: View
    course: Course
    batcher: Batcher
    maker: BatchMaker
    info: SampleInfo | None
    plan: RunPlan
    phase: RunPhase
    """The present phase of the plan; `spec` includes its settings."""

    @classmethod
    def of(cls, spec: RunSpec) -> Reading:
        """Open what `spec` reads. Raise UsageError for arguments that do not fit the dataset."""
        view = view_of(spec.dataset, spec.columns, spec.dtypes, spec.fill, spec.decode)
        plan = RunPlan.of(spec)
        first = plan.phases[0]
        check_not_cut(first.batching, spec.dataset)
        if plan.given and isinstance(spec.dataset, Mixture) and (len(spec.dataset.phases) > 1 or spec.dataset.run):
            hint = "give the plan the proportions of all its phases, and the mixture neither schedule= nor run="
            raise UsageError("a plan and a schedule exclude each other", found=repr(spec.dataset), hint=hint)
        return cls._begun(spec, view, plan)._checked()

    @classmethod
    def _begun(cls, spec: RunSpec, view: View, plan: RunPlan, phase: RunPhase | None = None) -> Reading:
        """Return what a run with that plan reads in its first phase, or in another one."""
        weights = plan.phases[0].weights
        course = course_of(spec.dataset, view, spec.seed, spec.shuffle, spec.epoch_samples, weights, spec.adopted)
        return cls._of(spec, view, course, plan, phase or plan.phases[0])

    def _checked(self, first: int = 1) -> Reading:
        """Return self. If a later phase of the plan, from number `first` on, is invalid, raise its error now instead of
        when it begins."""
        known = {(id(self.phase.batching), self.phase.sizes)}
        for phase in self.plan.phases[first:]:
            if (what := (id(phase.batching), phase.sizes)) in known:
                continue
            known.add(what)
            try:
                Reading._of(self.spec, self.view, self.course, self.plan, phase)
            except MdsxError as error:
                error.add_note(f"mdsx: in the phase of the plan from {phase.at:,} on")
                raise
        return self

    @classmethod
    def _of(
        cls,
        spec: RunSpec,
        view: View,
        course: Course,
        plan: RunPlan,
        phase: RunPhase,
        batcher: Batcher | None = None,
    ) -> Reading:
        """Return the Reading for a phase of a run with `spec`."""
        spec, info = phase.spec(spec), None
        if spec.random_transform is not None or spec.info_column is not None or view.decodes:
            seeds = spec.random_transform is not None
            info = SampleInfo(view, course.epoch_samples, int(spec.seed), column=spec.info_column, seeds=seeds)
        if batcher is None:
            batcher = spec.batching.batcher(
                view, course, spec.epoch_steps, seed=int(spec.seed), shuffle=bool(spec.shuffle)
            ).in_plan(plan.stages, None)
        packing, transform = None, spec.transform or spec.random_transform
        if spec.collate_fn is None:
            rows = spec.rows if spec.rows is not None else spec.cut(*spec.ranks.part).rows
            packing = spec.batching.packing(view, spec.info_column, rows=rows, transformed=transform is not None)
        if (
            spec.uneven == "repeat"
            and not (transform or spec.collate_fn)
            and any(column.name == VALID for column in view.schema.columns)
        ):
            raise UsageError(f"uneven='repeat' adds {VALID!r}, which is also a column", hint="rename it by columns=")
        _check_bucket(spec, view)
        maker = BatchMaker(
            spec.backend,
            view.schema,
            transform,
            spec.collate_fn,
            spec.uneven,
            spec.on_error,
            packing,
            spec.batching.buckets,
        )
        return cls(spec, view, course, batcher, maker, info, plan, phase)

    def respecified(self, spec: RunSpec) -> Reading:
        """Return the same samples in the same order, read as `spec` says."""
        if spec.plan is not None:
            if isinstance(spec.dataset, Mixture) and self.mixture_phases != spec.dataset.phases:
                hint = "give the plan's first phase these proportions, and do not call reweight() of the dataset"
                raise UsageError("a plan has the proportions, but the dataset was reweighted", hint=hint)
            return Reading.of(spec)
        plan = RunPlan.of(spec)
        check_not_cut(plan.phases[0].batching, spec.dataset)
        return Reading._of(spec, self.view, self.course, plan, plan.phases[0])

    def as_declared(self) -> Reading:
        """Return the Reading that the program declared, without changes by `loader.change` or a state."""
        declared = self.plan.declared
        return self if declared is None else Reading._begun(self.spec, self.view, declared)

    def at(self, cursor: Cursor) -> Reading:
        """Return what a run reads at a cursor that it reached like this: self, or a later phase of the plan."""
        plan, stages = self.plan, self.plan.stages
        stage = stages.at(self.batcher.progress(self.course, cursor))
        phase = plan.phases[stage]
        if phase is self.phase:
            return self
        start, earlier = Tick(cursor.epoch * self.course.epoch_samples + cursor.position), plan.number(self.phase)
        course = stages.course(self.course, range(earlier + 1, stage + 1), start)
        if phase.batching is self.phase.batching:
            return Reading._of(self.spec, self.view, course, plan, phase, self.batcher)
        reading = Reading._of(self.spec, self.view, course, plan, phase)
        if phase.batching.groups == self.phase.batching.groups:  # dealing or layout may still differ
            return replace(reading, batcher=reading.batcher.going_on(self.batcher))
        return replace(reading, batcher=reading.batcher.in_plan(stages, cursor))

    def next_change(self, cursor: Cursor) -> int:
        """Return the threshold from which on a run at `cursor` may still change.

        It is after the present step if a part of it was returned, and after the present window if groups were taken
        from it.
        """
        if cursor.part and self.batcher.grouped:
            cursor = step_end(self.steps(), cursor)
        begun = cursor.taken or cursor.part
        return self.batcher.progress(self.course, cursor) + (1 if begun else 0)

    def changed(self, phase: Phase, at: int) -> Reading:
        """Return the same with `phase` from the threshold `at` on. Raise UsageError if it does not fit."""
        plan, dataset = self.plan, self.spec.dataset
        if isinstance(dataset, Mixture) and (len(dataset.phases) > 1 or dataset.run):
            raise UsageError(
                "a run whose mixture has schedule= or run= cannot change by phases",
                found=repr(dataset),
                hint="give the loader a plan in place of the schedule; with run=, change proportions by reweight()",
            )
        if (
            phase.proportions is not None
            and isinstance(dataset, Mixture)
            and not isinstance(self.course, MixtureCourse)
        ):
            raise UsageError(NO_PROPORTIONS, hint=GIVE_PROPORTIONS)
        before = replace(plan.phases[plan.stages.at(at)], weights=self.weights_from(at))
        if before.batch_size is not None and phase.global_batch_size is not None:
            before = replace(before, batch_size=None)
        plan = plan.with_phase(followed(before, at, phase, dataset, plan.proportions_of, asked=True))
        made = plan.phases[plan.stages.at(at)]
        _check_resumable(before.batching, made.batching)
        _ = Reading._of(self.spec, self.view, self.course, plan, made)  # raises its errors
        return replace(self, plan=plan, batcher=self.batcher.in_plan(plan.stages, None))

    def weights_from(self, at: int) -> tuple[Weight, ...] | None:
        """Return the weights of a mixture's components at a future threshold of the plan; None for a past one."""
        stage = self.plan.stages.at(at)
        if self.plan.phases[stage] is not self.phase:
            return self.plan.phases[stage].weights
        return self.mixture_phases[-1][1] if self.mixture_phases else None

    def keeps(self, cursor: Cursor, task: Task) -> bool:
        """Return whether a task of the step at a cursor, cut without regard to later phases, is the same with them."""
        plan, stages = self.plan, self.plan.stages
        stage = stages.at(self.batcher.progress(self.course, cursor))
        if plan.phases[stage] is not self.phase:
            return False
        if self.batcher.grouped:
            return stages.at(task.planned) == stage
        end = plan.end(self.phase)
        return end is None or task.stop < end  # the last step before a phase leaves the epoch's rest to it

    def steps(self, counters: Counters | None = None, part: tuple[int, int] | None = None) -> Steps:
        """Return how epochs are cut into batches. `part`: the rank and number of ranks, by default the present ones."""
        rank, ranks = self.spec.ranks.part if part is None else part
        until = self.plan.recut(self.phase) if self.batcher.grouped else self.plan.end(self.phase)
        cut = self.spec.cut(rank, ranks)._replace(until=until, skip=self.plan.skip)
        return self.batcher.steps(self.course, cut, counters)

    # --- states

    @property
    def identity(self) -> OrderIdentity:
        """Return what the order depends on, besides epoch and position."""
        course, dataset = self.course, self.spec.dataset
        mixture = dataset if isinstance(dataset, Mixture) else None
        return OrderIdentity(
            order_version=ORDER_VERSION,
            seed=int(self.spec.seed),
            lanes=course.lanes,
            shuffle_block=course.shuffle_block,
            shuffle=bool(self.spec.shuffle),
            fingerprint=dataset.fingerprint,
            epoch_samples=course.epoch_samples,
            samples=course.samples,
            phases=self.mixture_phases,
            schedule=self._schedule,
            run=mixture.run if mixture is not None else None,
            components=mixture.components if mixture is not None else (),
            changed=mixture.changed if mixture is not None else None,
            held=mixture.held if mixture is not None else (),
        )

    @property
    def mixture_phases(self) -> Phases:
        """Return a mixture's weights, each with its first tick; else nothing."""
        return self.course.order.phases if isinstance(self.course, MixtureCourse) else ()

    @property
    def _schedule(self) -> Phases:
        """Return the declared proportions. For a plan, these are only the first ones, because later ones depend on its
        counts. After mdsx.change there are none for a plan: it was compared with the state's."""
        if self.plan.changes:
            if isinstance(self.spec.dataset, Mixture) and self.spec.dataset.changed is not None:
                return ()
            first = self.plan.phases[0].weights
            return () if first is None else ((0, first),)
        return self.spec.dataset.phases if isinstance(self.spec.dataset, Mixture) else ()

    def state(self, cursor: Cursor) -> dict[str, Any]:
        """Return the state of a run at `cursor`."""
        reading = self.at(cursor)
        progress = reading.batcher.progress(reading.course, cursor)
        return {**reading.batcher.state(reading.identity, reading.course, cursor), **self.plan.state(progress)}

    def resumed(self, state: Mapping[str, Any]) -> tuple[Reading, Cursor]:
        """Return what a run that continues with a state reads, and where. Raise StateError, which names the field."""
        reading = self.as_declared().at_snapshot(state).in_mixture_of(state).in_order_of(state).in_phase_of(state)
        cursor, phases, batcher = reading.batcher.resumed(reading.identity, reading.course, state)
        reading = replace(reading.with_mixture_phases(phases), batcher=batcher)
        reading.check_removed(cursor)
        return reading, cursor

    def in_mixture_of(self, state: object) -> Reading:
        """Return this with the mixture's components as in the state's run. Raise StateError."""
        spec, before = self.spec, self.spec.dataset
        if not isinstance(before, Mixture) or not isinstance(state, Mapping):
            return self
        after = as_in(before, state)
        if after is before:
            return self
        groups, there = spec.batching.groups or {}, [place for place in after.places or () if place is not None]
        by_array = isinstance(groups.get("length", groups.get("by")), Mapping)
        if by_array and there != sorted(there):
            hint = "list the components that stay in the order of the run, and new ones after them"
            message = "the lengths or sizes were given as an array, but the components are in another order"
            raise StateError(message, place="components", found=shown([*after.names]), hint=hint)
        spec = replace(spec, dataset=after)
        view = view_of(after, spec.columns, spec.dtypes, spec.fill, spec.decode)
        return Reading._begun(spec, view, self.plan.with_weights(lambda weights: renumbered(weights, before, after)))

    def in_order_of(self, state: object) -> Reading:
        """Return this with the lanes and the block of a state where none are given. Raise StateError."""
        adopted, now = shuffle_of(state), Shuffle(self.course.lanes, self.course.shuffle_block)
        if not self.spec.shuffle or adopted is None or adopted == now:
            return self
        try:
            return Reading._begun(replace(self.spec, adopted=adopted), self.view, self.plan)
        except UsageError as error:
            raise StateError("the lanes of the state do not fit", place="lanes", found=str(error)) from error

    def check_removed(self, cursor: Cursor) -> None:
        """Raise StateError if a component that was removed is needed from a cursor on."""
        if not isinstance(self.course, MixtureCourse) or None not in self.view.components:
            return
        order, start = self.course.order, cursor.epoch * self.course.epoch_samples + cursor.position
        if order.last_change <= start:
            return
        drawn = order.drawn(start, order.last_change)
        for number, (excerpt, count) in enumerate(zip(self.view.components, drawn.tolist(), strict=True)):
            if excerpt is None and count:
                raise StateError(
                    f"the run still reads the component {shown(self.names[number])}, which is to be removed",
                    place="components",
                    found=f"{count} of its samples before tick {order.last_change}",
                    expected="a mixture with that component",
                    hint="keep this component in the mixture, with the proportion 0, until the window ends",
                )

    def in_phase_of(self, state: object) -> Reading:
        """Return this in the state's phase of the plan. Raise StateError."""
        if not isinstance(state, Mapping) or (not self.plan.given and "plan" not in state):
            return self
        progress = self.batcher.progress_of(self.course, state)
        plan = self.plan.resumed(state, progress, len(self.names))
        now = plan.stages.at(progress or 0)
        for phase in plan.phases[now + 1 :]:
            for name, excerpt, weight in zip(self.names, self.view.components, phase.weights or (), strict=False):
                if excerpt is None and weight:
                    raise StateError(
                        f"a later phase of the run reads the component {shown(name)}, which was removed",
                        place=f"plan, the phase from {phase.at:,} on",
                        hint="keep it in the mixture, with the proportion 0",
                    )
        try:
            return Reading._begun(self.spec, self.view, plan, plan.phases[now])._checked(now + 1)
        except UsageError as error:
            hint = "give the loader the arguments that the state's run had"
            raise StateError("the plan of the state does not fit", place="plan", found=str(error), hint=hint) from error

    def reweighted(self, proportions: Sequence[Weight] | Mapping[str, Weight], cursor: Cursor) -> Reading:
        """Return the same with these proportions of a mixture's components from `cursor` on, up to the next entry of
        its schedule."""
        mixture = self.spec.dataset
        if not isinstance(mixture, Mixture):
            raise UsageError("only a mixture can be reweighted", found=type(mixture).__name__)
        if not isinstance(self.course, MixtureCourse):
            raise UsageError(NO_PROPORTIONS, hint=GIVE_PROPORTIONS)
        reached = self.reached(cursor)
        phases = self.mixture_phases
        now = next((weights for start, weights in reversed(phases) if start <= reached), None)
        return self.with_mixture_phases(add_phase(phases, reached, weights_of(mixture, proportions, now)))

    def reached(self, cursor: Cursor) -> Tick:
        """Return the first tick whose order may still change in a run at `cursor`."""
        return self.batcher.reached(self.course, cursor)

    def with_mixture_phases(self, phases: Phases) -> Reading:
        """Return the same with these phases of the order."""
        if not isinstance(self.course, MixtureCourse) or phases == self.mixture_phases:
            return self
        return replace(self, course=self.course.with_phases(phases))

    def at_snapshot(self, state: object) -> Reading:
        """Return self; or, if the state was saved before parts were appended to the dataset, a Reading of its snapshot.

        This works only for a whole dataset: the state of a selection or a mixture does not name its snapshot. A dataset
        that was opened as a snapshot stays one.
        """
        dataset, fingerprint = self.spec.dataset, state.get("fingerprint") if isinstance(state, Mapping) else None
        if not isinstance(dataset, Dataset) or not isinstance(fingerprint, str) or fingerprint == dataset.fingerprint:
            return self
        excerpt = excerpt_of(dataset)
        if excerpt.sides or excerpt.subset.name or excerpt.shards.is_pinned:
            return self
        try:
            shards = excerpt.shards.at_snapshot(fingerprint)
        except (ForbiddenError, MissingError, UsageError):  # the state is of another dataset: its check says so
            return self
        kept = with_excerpt(dataset, replace(excerpt, shards=shards, subset=AllSamples(shards.index.counts)))
        spec = replace(self.spec, dataset=kept)
        view = view_of(kept, spec.columns, spec.dtypes, spec.fill, spec.decode)
        return Reading._begun(spec, view, self.plan.of_first(len(kept)))

    def log_snapshot(self, whole: Reading) -> None:
        """Log on rank 0 if a run continues with this snapshot of `whole`'s dataset."""
        if self.warns and isinstance(self.spec.dataset, Dataset) and self.course.samples < whole.course.samples:
            _log.warning(
                "%s: the state was saved when the dataset had %d samples; the run continues with this snapshot, %s, "
                "and does not read samples that were appended since (there are %d now)",
                self.view.excerpts[0].shards.storage.url,
                self.course.samples,
                self.spec.dataset.fingerprint,
                whole.course.samples,
            )

    # --- accounts

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the components; "" for a dataset alone."""
        return self.spec.dataset.names if isinstance(self.spec.dataset, Mixture) else ("",)

    def drawn(self, start: Tick, stop: Tick) -> NDArray[np.int64]:
        """Return how many samples of each component are drawn from tick `start` up to `stop`."""
        excluded = self.course.excluded
        if isinstance(self.course, MixtureCourse) and excluded is None:
            return self.course.order.drawn(start, stop)
        firsts, found = self.view.firsts, np.zeros(len(self.view.firsts) - 1, np.int64)
        if len(found) == 1 and excluded is None:
            return found + (stop - start)
        whole = np.diff(np.append(0, np.cumsum(self.view.counts))[firsts])
        samples = max(self.course.samples, 1)
        while start < stop:
            if start % samples == 0 and start + samples <= stop and excluded is None:
                epochs = (stop - start) // samples
                found += epochs * whole
                start = Tick(start + epochs * samples)
                continue
            end = Tick(min(stop, start + _COUNTED, (start // samples + 1) * samples))
            ticks = np.arange(start, end)
            shards, numbers = self.course.locate(ticks)
            if excluded is not None:
                shards = shards[excluded.kept(ticks, shards, numbers)]
            found += np.bincount(np.searchsorted(firsts, shards, side="right") - 1, minlength=len(found))
            start = end
        return found

    # --- reading

    def share(self, steps: Steps, task: Task, rank: int) -> int:
        """Return how many samples of a task a rank gets."""
        if self.course.excluded is None or task.groups is not None:
            return steps.share(task, rank)
        return int(steps.rank_share([task], self.course, rank).counts[0])

    def reader(
        self,
        steps: Steps,
        workers: int = 0,
        *,
        pace: Pace | None = None,
        views: bool | None = None,
        stand_in: bool | None = None,
    ) -> RankReader:
        """Return a reader of this rank's part of batches, for this process or `workers` others.

        `views`: return encoded bytes as memory views; default `zero_copy`. `stand_in`: read a sample for a rank without
        any; by default if the maker needs it.
        """
        spec, maker = self.spec, self.maker
        return RankReader(
            self.view,
            self.course,
            steps,
            spec.ranks.part[0],
            pace=pace,
            processes=spec.ranks.here * max(workers, 1),
            views=spec.zero_copy if views is None else views,
            stored=maker.takes_stored,
            stand_in=maker.needs_stand_ins if stand_in is None else stand_in,
            skip=spec.on_error == "skip",
            info=self.info,
        )

    def check_empty(self, tick: Tick) -> None:
        """Raise UsageError if the batch that `collate_fn` makes from the sample at `tick` cannot be cut to 0."""
        assert self.spec.collate_fn is not None
        ticks = np.array([tick])
        shards, samples = self.course.locate(ticks)
        samples = self.view.stored(shards, samples)
        added = NOTHING_ADDED if self.info is None else self.info.of(ticks, shards, samples)
        places, groups = self.view.by_shard(shards, samples)
        try:
            found = [(shard, self.view.select(shard, group)) for shard, group in groups]
            (columns,) = self.view.gather(found, places, [1], seeds=added.seeds)
        except CorruptError:
            if self.spec.on_error == "skip":  # the sample's own batch handles the error
                return
            raise
        positions = ticks % self.course.epoch_samples
        batch = Batch(columns, positions, shards, samples, True, **added.to(columns, slice(None)))
        check_empty(self.view.schema, batch, self.maker.transform, self.spec.collate_fn)

    @property
    def warns(self) -> bool:
        """Return whether this process is the one that warns, for all that would issue the same warning."""
        return self.spec.ranks.process[0] == 0

    def warn_of_costs(self, steps: Steps) -> None:
        """Warn on rank 0 if the cache is too small, or if the batch size makes nodes share lanes."""
        if not self.warns:
            return
        view, course, ranks, here = self.view, self.course, steps.world_size, self.spec.ranks.here
        shards, window = int(np.count_nonzero(view.counts)), steps.window_end(Tick(0))
        for advice in (
            small_cache(
                course,
                view.cache_limit,
                view.bytes_of,
                shards=shards,
                window=window,
                ranks_here=here,
                world_size=ranks,
            ),
            None if window else shared_lanes(course, steps.period, ranks_here=here, world_size=ranks),
        ):
            if advice is not None:
                warn(advice)

    def batch_bytes(self, steps: Steps) -> int:
        """Return the average bytes of a batch, at least 1; for packed batches, the most."""
        packing = self.maker.packing
        if packing is not None and packing.row_bytes is not None:
            return self.spec.cut(0, steps.world_size).rows * packing.row_bytes
        return max(self.view.sample_bytes * steps.step_samples // steps.world_size, 1)

    def together(self, steps: Steps, workers: int = 0) -> int:
        """Return how many batches a thread, or one of `workers` processes, hands over together."""
        return 1 if self.maker.one_by_one else batches_together(self.batch_bytes(steps), workers)


def _check_resumable(before: Batching, after: Batching) -> None:
    """Raise UsageError unless a program with one of the two can resume a run with the other: a state names only what
    JSON can hold."""
    try:
        before.with_groups(after.groups)
        after.with_groups(before.groups)
    except (TypeError, ValueError) as error:
        hint = "give the loader a plan with both phases, which a resumed program gives too"
        raise UsageError(
            "a program could not resume this change from a state", found=repr(after), expected=str(error), hint=hint
        ) from None


def _check_bucket(spec: RunSpec, view: View) -> None:
    """Raise UsageError if a column has the name of the key for the bucket. The column of the buckets' numbers may have
    it, because it says the same."""
    buckets, by = spec.batching.buckets, getattr(spec.batching, "by", None)
    if buckets is None or (isinstance(by, str) and by == BUCKET and not isinstance(buckets[0], tuple)):
        return
    if spec.info_column == BUCKET or any(column.name == BUCKET for column in view.schema.columns):
        raise UsageError(f"mdsx.Buckets adds {BUCKET!r}, which is also a column", hint="rename it by columns=")


def batches_together(batch_bytes: int, workers: int = 0) -> int:
    """Return how many batches of that size a thread, or one of `workers` processes, hands over together.

    A thread's handover costs as much as copying 100 kB, and a process's message, with the reads for it, as much as
    copying 5 MB.
    """
    most = 2 * _TOGETHER_BYTES if workers else _TOGETHER_BYTES
    return min(max(round(most / batch_bytes), 1), _TOGETHER)
