"""One rank's view of a dataset: its number, and which samples it reads in which order.

It has no position.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from mdsx.dataset import Dataset
from mdsx.errors import CorruptError, ForbiddenError, MissingError, UsageError, shown
from mdsx.loader.agreement import Store
from mdsx.loader.assembly import Kit, Transform, check_empty, failed_in_collate, failed_in_transform
from mdsx.loader.course import course_of, view_of
from mdsx.loader.making import BatchMaker
from mdsx.loader.ranks import RankOptions, Ranks
from mdsx.mixture import Mixture, add_phase
from mdsx.order import (
    MAX_SAMPLES,
    ORDER_VERSION,
    AllSamples,
    MixtureCourse,
    Phases,
    Shuffle,
    Weight,
)
from mdsx.process import Counters
from mdsx.shards import ColumnChoice, Shards, View
from mdsx.storage import StorageOptions
from mdsx.storage.cache import Cache, CacheLike
from mdsx.stream import (
    NOTHING_ADDED,
    Batch,
    Batching,
    GroupBatching,
    GroupSource,
    Layout,
    OrderIdentity,
    Pace,
    Packing,
    Place,
    RankReader,
    SampleInfo,
    Steps,
    Task,
    takes_generator,
    warn_of_small_cache,
    warn_of_spread,
)

_log = logging.getLogger("mdsx")

_CONNECTIONS = 32  # about as many as samples of a first batch
_IDS = 8  # bytes of a value's segment id and position id
_TOGETHER_BYTES = 2**21
_TOGETHER = 16


class RankData:
    """The samples of a dataset in their order; this rank reads its part of them."""

    def __init__(
        self,
        dataset: Dataset | Mixture,
        view: View,
        *,
        seed: int,
        shuffle: bool | Shuffle,
        epoch_samples: int | None,
        ranks: Ranks,
        transform: Transform | None,
        info_column: str | None,
        zero_copy: bool,
        kit: Kit,
        columns: ColumnChoice | None,
    ) -> None:
        """`columns`: those that the view has of the dataset."""
        self._made_with: dict[str, Any] = {
            "seed": seed,
            "shuffle": shuffle,
            "epoch_samples": epoch_samples,
            "ranks": ranks,
            "transform": transform,
            "info_column": info_column,
            "zero_copy": zero_copy,
            "kit": kit,
            "columns": columns,
        }
        self.dataset = dataset
        self.view = view
        self.course = course_of(dataset, view, seed, shuffle, epoch_samples)
        if isinstance(seed, bool):
            raise UsageError("seed must be an integer", found=shown(seed))
        self.seed, self.shuffle = int(seed), bool(shuffle)
        if transform is not None and not callable(transform):
            raise UsageError("transform must be a function of a sample", found=shown(transform))
        self.info: SampleInfo | None = None
        seeds = transform is not None and takes_generator(transform)
        if seeds or info_column is not None:
            self.info = SampleInfo(view, self.course.epoch_samples, self.seed, column=info_column, seeds=seeds)
        self.zero_copy = zero_copy
        self.maker = BatchMaker(kit, view.schema, transform)
        self.groups: GroupSource | None = None
        self._ranks = ranks
        self._pace = Pace()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pace": Pace()}

    def __repr__(self) -> str:
        """Return what a loader or dataset that reads this shows of it."""
        batching = f", batching={shown(self.groups.layout)}" if self.groups is not None else ""
        return f"{self.dataset!r}, seed={self.seed}, shuffle={self.shuffle}{batching}"

    def copy(self) -> RankData:
        """Return the same samples in the same order, to read at a separate pace."""
        copied = copy(self)
        copied.groups = copy(self.groups)  # a state that one of them loads may change its window
        return copied

    def for_state(self, state: object) -> RankData:
        """Return this; or, if the state was saved before parts were appended to the dataset, the same of the snapshot
        that the state is of.

        Only a whole dataset finds its snapshot: the state of a selection or a mixture does not say which it was. A
        dataset that was opened as a snapshot stays that.
        """
        dataset, fingerprint = self.dataset, state.get("fingerprint") if isinstance(state, Mapping) else None
        if not isinstance(dataset, Dataset) or not isinstance(fingerprint, str) or fingerprint == dataset.fingerprint:
            return self
        excerpt = dataset.excerpt
        if excerpt.sides or excerpt.subset.name or excerpt.shards.is_pinned:
            return self
        try:
            shards = excerpt.shards.at_snapshot(fingerprint)
        except (ForbiddenError, MissingError, UsageError):  # it is of another dataset, as its check says
            return self
        kept = dataset.with_excerpt(replace(excerpt, shards=shards, subset=AllSamples(shards.index.counts)))
        data = RankData(kept, view_of(kept, self._made_with["columns"]), **self._made_with)
        data.maker = replace(self.maker, schema=data.view.schema)
        if self.groups is not None:
            layout = self.groups.layout
            if not isinstance(layout.length, str):
                layout = replace(layout, length=np.asarray(layout.length)[: len(kept)])
            data.group(layout, self.groups.epoch_steps)
        return data

    def log_snapshot(self, whole: RankData) -> None:
        """Log on rank 0 that a run continues with this snapshot of the dataset `whole`."""
        if self.warns and self.course.samples < whole.course.samples:
            _log.warning(
                "%s: the state was saved when the dataset had %d samples; the run continues with this snapshot, %s, "
                "and does not read what was appended since (there are %d samples now)",
                self.view.excerpts[0].shards.storage.url,
                self.course.samples,
                self.dataset.fingerprint,
                whole.course.samples,
            )

    def group(self, layout: Layout, epoch_steps: int | None) -> None:
        """Hand out groups of samples."""
        if self.course.run is not None:
            hint = "leave out run= of the mixture, or batching= of the loader"
            raise UsageError("a mixture in runs cannot be grouped", found=f"run={self.course.run}", hint=hint)
        self.groups = GroupSource(self.view, layout, epoch_steps, seed=self.seed, shuffle=self.shuffle)
        if self.maker.collate is None:
            length_column = layout.length if isinstance(layout.length, str) else None
            info = self.info.column if self.info is not None else None
            packing = Packing(self.view.schema, layout, length_column, info)
            self.maker = replace(self.maker, packing=packing)

    @property
    def ranks(self) -> tuple[int, int]:
        """Return (rank, world size) of those that see different samples."""
        return self._ranks.part

    @property
    def ranks_given(self) -> bool:
        """Whether the user gave the rank; else it is what torch.distributed or the launcher says."""
        return self._ranks.given

    @property
    def warns(self) -> bool:
        """Whether this process warns for all that would do the same."""
        return self._ranks.process[0] == 0

    @property
    def identity(self) -> OrderIdentity:
        """Return what the order depends on, beside epoch and position."""
        course = self.course
        return OrderIdentity(
            order_version=ORDER_VERSION,
            seed=self.seed,
            lanes=course.lanes,
            shuffle_block=course.shuffle_block,
            shuffle=self.shuffle,
            fingerprint=self.dataset.fingerprint,
            epoch_samples=course.epoch_samples,
            samples=course.samples,
            phases=self.phases,
            schedule=self.dataset.phases if isinstance(self.dataset, Mixture) else (),
            run=self.dataset.run if isinstance(self.dataset, Mixture) else None,
            components=self.dataset.components if isinstance(self.dataset, Mixture) else (),
        )

    @property
    def phases(self) -> Phases:
        """Return a mixture's weights, each with its first position (since the run began); else nothing."""
        return self.course.order.phases if isinstance(self.course, MixtureCourse) else ()

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight], position: int) -> None:
        """Continue with these proportions of a mixture's components from `position` on, counted over all epochs, up to
        the next entry of its schedule."""
        if not isinstance(self.dataset, Mixture):
            raise UsageError("only a mixture can be reweighted", found=type(self.dataset).__name__)
        self.use_phases(add_phase(self.phases, position, self.dataset.weights(proportions)))

    def use_phases(self, phases: Phases) -> None:
        """Continue in the order with these phases."""
        if isinstance(self.course, MixtureCourse) and phases != self.phases:
            self.course = self.course.with_phases(phases)

    def batching(self, batch_size: int, drop_last: bool) -> Batching:
        """Return how an epoch is cut into batches of samples over ranks."""
        return Batching(self.course.epoch_samples, batch_size, self.ranks[1], drop_last)

    def steps(self, batch_size: int, drop_last: bool, counters: Counters | None = None) -> Steps:
        """Return how an epoch is cut into batches over ranks: of samples, or of groups."""
        if self.groups is None:
            return self.batching(batch_size, drop_last)
        rank, ranks = self.ranks
        return self.groups.batching(
            self.course, batch_size, rank=rank, world_size=ranks, drop_last=drop_last, counters=counters
        )

    def steps_now(self, steps: Steps, counters: Counters) -> Steps:
        """Return `steps`, for the ranks that they have, in the order as it is now: groups change with its phases."""
        if self.groups is None or not isinstance(steps, GroupBatching):
            return steps
        rank, ranks = steps.rank, steps.world_size
        return self.groups.batching(
            self.course, steps.rows, rank=rank, world_size=ranks, drop_last=steps.drop_last, counters=counters
        )

    def known_steps(self, batch_size: int, drop_last: bool) -> Steps | None:
        """Return `steps` if the ranks are known, else None."""
        try:
            return self.steps(batch_size, drop_last)
        except UsageError:  # the ranks are not known yet
            return None

    def state(self, epoch: int, place: Place) -> dict[str, Any]:
        """Return the state of a run at (epoch, place)."""
        if self.groups is None:
            return self.identity.state(epoch, place)
        return self.groups.state(self.identity, self.course, epoch, place)

    def check(self, state: Mapping[str, Any]) -> tuple[int, Place, Phases]:
        """Return (epoch, place, phases) of a state of this order. Raise StateError that names the field."""
        if self.groups is not None:
            return self.groups.check(self.identity, self.course, state)
        return self.identity.check(state)

    def agreed(self, batching: Steps, batch_size: int, drop_last: bool) -> dict[str, Any]:
        """Return what decides which samples come in which step: as JSON, equal on all ranks."""
        order = self.identity.state(0, 0, reached=MAX_SAMPLES)
        groups = {} if self.groups is None else self.groups.fields
        cut = {"batch_size": batch_size, "world_size": batching.world_size, "drop_last": drop_last}
        return {name: value for name, value in order.items() if name not in ("epoch", "position")} | groups | cut

    @property
    def source(self) -> object:
        """Return what this was asked to read, as JSON: equal on ranks that were given the same."""
        view, made_with = self.view, self._made_with
        return [
            [[[shards.storage.url for shards in excerpt.datasets], excerpt.subset.name] for excerpt in view.excerpts],
            [column.name for column in view.schema.columns],
            [str(made_with["shuffle"]), str(made_with["epoch_samples"])],
            "" if self.groups is None else str(self.groups.layout.window),
        ]

    @property
    def store(self) -> Store | None:
        """Return what all ranks have in common, if anything."""
        store: Store | None = self._ranks.store
        return store

    def reached(self, epoch: int, place: Place) -> int:
        """Return the first position, counted over all epochs, whose order may still change."""
        if self.groups is None:
            return int(epoch * self.course.epoch_samples + place)
        return self.groups.reached(self.course, place)

    def reader(
        self, batching: Steps, workers: int = 0, *, views: bool | None = None, stand_in: bool = False
    ) -> RankReader:
        """Return a reader of this rank's part of batches, for this process or `workers` others.

        `views`: encoded bytes as memory views; default `zero_copy`.
        """
        views = self.zero_copy if views is None else views
        processes = self._ranks.here * max(workers, 1)
        return RankReader(
            self.view,
            self.course,
            batching,
            self.ranks[0],
            pace=self._pace,
            processes=processes,
            views=views,
            stored=self.maker.takes_stored,
            stand_in=stand_in,
            skip=self.maker.on_error == "skip",
            info=self.info,
        )

    def warn_of_costs(self, batching: Steps) -> None:
        """Warn on rank 0 if the cache is too small, or the batches do not fit the lanes."""
        if self.warns:
            warn_of_small_cache(self.view, self.course, ranks_here=self._ranks.here, world_size=batching.world_size)
            warn_of_spread(self.course, batching)

    def batch_bytes(self, batching: Steps) -> int:
        """Return the average bytes of a batch, at least 1; of packed ones, the most."""
        packing = self.maker.packing
        if packing is not None and isinstance(batching, GroupBatching):
            value = sum(kind.nbytes for kind in packing.types.values()) + _IDS
            return batching.rows * packing.layout.capacity * value
        return max(self.view.sample_bytes * batching.step_samples // batching.world_size, 1)

    def together(self, batching: Steps) -> int:
        """Return how many batches to hand over together: each handover costs as much as copying 100 kB."""
        return 1 if self.maker.one_by_one else batches_together(self.batch_bytes(batching))

    def skip_cures(self, error: Exception, task: Task, batching: Steps) -> bool:
        """Return whether on_error="skip" would leave out what raised `error`."""
        if self.maker.on_error == "skip" or failed_in_collate(error):
            return False
        if failed_in_transform(error):
            return True
        if not isinstance(error, CorruptError):
            return False
        reader = self.reader(batching, stand_in=self.maker.needs_stand_ins)
        try:  # samples may be damaged, or the whole shard wrong
            reader.read_sound(task)
        except Exception:
            return False
        finally:
            reader.close()
        return True

    def check_empty(self, epoch: int, position: int) -> None:
        """Raise UsageError if the batch that `collate` makes at `position` cannot be cut to 0 samples."""
        positions = np.array([epoch * self.course.epoch_samples + position])
        shards, samples = self.course.locate(positions)
        samples = self.view.stored(shards, samples)
        places, groups = self.view.by_shard(shards, samples)
        try:
            found = [(shard, self.view.select(shard, group)) for shard, group in groups]
            (columns,) = self.view.gather(found, places, [1])
        except CorruptError:
            if self.maker.on_error == "skip":  # its own batch handles it
                return
            raise
        added = NOTHING_ADDED if self.info is None else self.info.of(positions, shards, samples)
        batch = Batch(columns, positions, shards, samples, True, **added.to(columns, slice(None)))
        assert self.maker.collate is not None
        check_empty(self.view.schema, batch, self.maker.transform, self.maker.collate)


def batches_together(batch_bytes: int) -> int:
    """Return how many batches of that size are handed over together."""
    return min(max(_TOGETHER_BYTES // batch_bytes, 1), _TOGETHER)


def rank_data(
    dataset: str | os.PathLike[str] | Dataset | Mixture,
    *,
    columns: ColumnChoice | None,
    seed: int,
    shuffle: bool | Shuffle,
    epoch_samples: int | None,
    cache: CacheLike,
    transform: Transform | None,
    info_column: str | None,
    zero_copy: bool,
    storage_options: StorageOptions | None,
    rank_options: RankOptions,
    kit: Kit,
) -> RankData:
    """Open a dataset if it is a URL, and return this rank's view of it. Raise UsageError for invalid arguments."""
    if not isinstance(shuffle, bool | Shuffle):
        raise UsageError("shuffle must be True, False or an mdsx.Shuffle", found=shown(shuffle))
    if isinstance(dataset, Dataset | Mixture):
        if storage_options is not None:
            kind = type(dataset).__name__
            raise UsageError(f"the {kind} is open already", hint=f"give storage_options= to the mdsx.{kind}")
        dataset = dataset.with_cache(Cache.of(cache))
    else:
        shards = Shards(dataset, cache=Cache.of(cache), connections=_CONNECTIONS, storage_options=storage_options)
        dataset = Dataset.of(shards)
    view = view_of(dataset, columns)
    return RankData(
        dataset,
        view,
        seed=seed,
        shuffle=shuffle,
        epoch_samples=epoch_samples,
        ranks=Ranks(rank_options),
        transform=transform,
        info_column=info_column,
        zero_copy=zero_copy,
        kit=kit,
        columns=columns,
    )
