"""RunSpec: a loader's arguments as one value. Open a dataset, its view and its course from them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from mdsx.datasets import Dataset, Mixture, dataset_of, left_out_of, with_cache
from mdsx.errors import UsageError, shown
from mdsx.loader.assembly import ArrayBackend, Collate, OnError, Transform
from mdsx.loader.collation import Uneven
from mdsx.loader.ranks import Ranks
from mdsx.order import (
    MAX_BATCH,
    Course,
    DatasetCourse,
    Excluded,
    MixtureCourse,
    MixtureOrder,
    Order,
    Shuffle,
    Weight,
    integer,
)
from mdsx.shards import ColumnChoice, Decode, DTypes, Fill, Shards, View
from mdsx.storage import StorageOptions
from mdsx.storage.cache import Cache, CacheLike
from mdsx.stream import SAMPLES, Batching, Cut, Plan, checked_share, given_batching

_CONNECTIONS = 32  # about the number of samples in a first batch


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSpec:
    """A run: what it reads, in which order, and its batches. `mdsx.Loader` describes each field.

    `ranks` looks up the ranks when an iteration begins. `backend` makes arrays. `adopted` has the lanes and the block
    of the state that the run continues, for a run that was given none.
    """

    dataset: Dataset | Mixture
    columns: ColumnChoice | None
    dtypes: DTypes | None
    fill: Fill | None
    decode: Decode | None
    seed: int
    shuffle: bool | Shuffle
    epoch_samples: int | None
    transform: Transform | None
    random_transform: Transform | None
    info_column: str | None
    zero_copy: bool
    ranks: Ranks
    backend: ArrayBackend
    batching: Batching = SAMPLES
    batch_size: int | None = None
    global_batch_size: int | None = None
    micro_batch: int | None = None
    epoch_steps: int | None = None
    drop_last: bool = True
    collate_fn: Collate | None = None
    uneven: Uneven = "empty"
    on_error: OnError = "raise"
    max_skipped: float | None = None
    plan: Plan | None = None
    adopted: Shuffle | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shuffle, bool | Shuffle):
            raise UsageError("shuffle must be True, False or an mdsx.Shuffle", found=shown(self.shuffle))
        for name in ("transform", "random_transform"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise UsageError(f"{name} must be a function of a sample", found=shown(given))
        if self.transform is not None and self.random_transform is not None:
            raise UsageError("a sample has one transform", hint="give transform= or random_transform=, not both")
        if self.transform is not None and _takes_two(self.transform):
            raise UsageError(
                "transform is called with a sample only, and this one takes two arguments",
                hint="give it as random_transform=: it is called with the sample and a NumPy generator",
            )
        if self.uneven not in ("empty", "repeat"):
            raise UsageError("uneven must be 'empty' or 'repeat'", found=shown(self.uneven))
        if self.on_error not in ("raise", "skip"):
            raise UsageError("on_error must be 'raise' or 'skip'", found=shown(self.on_error))
        checked_share(self.max_skipped, self.on_error)
        if self.plan is not None and not isinstance(self.plan, Plan):
            raise UsageError("plan must be an mdsx.Plan", found=shown(self.plan))
        if self.plan is None:  # each phase of a plan is checked by itself
            _ = self.rows  # it checks these arguments together

    @property
    def rows(self) -> int | None:
        """Return the samples or rows in a rank's batch; None if they depend on the number of ranks.

        Raise UsageError for arguments that contradict each other.
        """
        if self.batching.step_samples is not None:
            self._rows_of(self.batch_size if self.global_batch_size is None else self.global_batch_size)
            return None if self.micro_batch is None else integer(self.micro_batch, "micro_batch", 1, MAX_BATCH)
        if self.global_batch_size is None and self.micro_batch is None:
            return self._rows_of(self.batch_size)
        if self.batch_size is not None or self.global_batch_size is None:
            raise UsageError(
                "give batch_size, for each rank, or global_batch_size, over all ranks, with or without micro_batch",
                found=f"batch_size={shown(self.batch_size)}, global_batch_size={shown(self.global_batch_size)}, "
                f"micro_batch={shown(self.micro_batch)}",
            )
        integer(self.global_batch_size, "global_batch_size", 1, MAX_BATCH)
        if self.micro_batch is not None:
            integer(self.micro_batch, "micro_batch", 1, MAX_BATCH)
        self._rows_of(None if self.batching.one_group else self.global_batch_size)
        if self.batching.one_group and self.micro_batch != 1:
            raise UsageError(
                f"a batch of mdsx.{type(self.batching).__name__} is one group of samples",
                found=f"micro_batch={shown(self.micro_batch)}",
                hint="to get global_batch_size= groups over all ranks, give micro_batch=1: each group is then a batch",
            )
        return self.micro_batch

    def _rows_of(self, batch_size: int | None) -> int:
        return self.batching.rows(batch_size, epoch_steps=self.epoch_steps, collate=self.collate_fn, uneven=self.uneven)

    def cut(self, rank: int, ranks: int) -> Cut:
        """Return a rank's part of the steps."""
        size = self.global_batch_size or self.batching.step_samples
        if size is None:
            size = (self.rows or 1) * ranks
        node = None if self.batching is SAMPLES else self.ranks.node  # only groups are dealt node by node
        return Cut(size, rank, ranks, self.drop_last, self.micro_batch, ranks_per_node=node)

    def __repr__(self) -> str:
        """Return the arguments that the `repr` of a loader or dataset shows."""
        batching = f", batching={shown(self.batching)}" if self.batching is not SAMPLES else ""
        return f"{self.dataset!r}, seed={self.seed}, shuffle={bool(self.shuffle)}{batching}"


def opened(
    dataset: str | os.PathLike[str] | Dataset | Mixture, cache: CacheLike, storage_options: StorageOptions | None
) -> Dataset | Mixture:
    """Open a dataset if it is a URL, and read it through `cache`. Raise UsageError for arguments that do not apply."""
    if isinstance(dataset, Dataset | Mixture):
        if storage_options is not None:
            kind = type(dataset).__name__
            raise UsageError(f"the {kind} is open already", hint=f"give storage_options= to the mdsx.{kind}")
        return with_cache(dataset, Cache.of(cache))
    return dataset_of(Shards(dataset, cache=Cache.of(cache), connections=_CONNECTIONS, storage_options=storage_options))


def course_of(
    dataset: Dataset | Mixture,
    view: View,
    seed: int,
    shuffle: bool | Shuffle,
    epoch_samples: int | None,
    weights: Sequence[Weight] | None = None,
    adopted: Shuffle | None = None,
) -> Course:
    """Return the course of a run that reads `view` of `dataset`. `weights` replace those of a mixture; `adopted` has
    the lanes and the block if `shuffle` has none. Raise UsageError for invalid arguments."""
    chosen, adopted = shuffle if isinstance(shuffle, Shuffle) else Shuffle(), adopted or Shuffle()
    lanes = adopted.lanes if chosen.lanes is None else chosen.lanes
    shuffle_block = adopted.shuffle_block if chosen.shuffle_block is None else chosen.shuffle_block
    if epoch_samples is None and isinstance(dataset, Mixture):
        epoch_samples = dataset.epoch_samples
    phases = dataset.phases if isinstance(dataset, Mixture) else ()
    if weights is not None and (not phases or phases[0][1] != weights):
        phases = ((0, tuple(weights)),)
    if not isinstance(dataset, Mixture) or not phases:
        order = Order(view.counts, seed=seed, shuffle=bool(shuffle), lanes=lanes, shuffle_block=shuffle_block)
        return DatasetCourse(order, epoch_samples)
    if not shuffle:
        raise UsageError(
            "a mixture with proportions is shuffled", hint="for shuffle=False, give its components without proportions"
        )
    counts = [
        max(size, 1) if excerpt is None else excerpt.subset.counts
        for excerpt, size in zip(view.components, dataset.sizes, strict=True)
    ]
    (_, first), *later = phases
    order_of_all = MixtureOrder(
        counts, first, seed=seed, lanes=lanes, shuffle_block=shuffle_block, phases=later, run=dataset.run
    )
    left_out = left_out_of(dataset)
    excluded = Excluded(view.counts, view.firsts, left_out) if left_out else None
    return MixtureCourse(order_of_all, view.firsts, epoch_samples, excluded)


def first_batching(spec: RunSpec) -> Batching:
    """Return the batching that a run begins with."""
    return (spec.plan.phases[0].batching if spec.plan is not None else None) or spec.batching


def checked_batching(batching: object) -> Batching:
    """Return `batching`, or batches of samples for None. Raise UsageError for anything else."""
    return SAMPLES if batching is None else given_batching(batching)


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function has exactly two required positional parameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is Parameter.empty for each in parameters) == 2
