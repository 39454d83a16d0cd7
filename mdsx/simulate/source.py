"""The simulated data: the index of real datasets, or a made-up dataset, and its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mdsx.base.sizes import format_count
from mdsx.datasets import Dataset, Mixture, view_of
from mdsx.errors import UsageError
from mdsx.loader import course_of
from mdsx.order import Course, DatasetCourse, Order, Shuffle
from mdsx.simulate.quality import Labels
from mdsx.simulate.settings import MADE_UP, Cluster, Loading
from mdsx.simulate.stored import Stored, made_up, stored_in
from mdsx.storage import StorageOptions
from mdsx.stream import SAMPLES, Batcher, Batching, Cut, Steps

_MOST_LABELS = 10_000_000


@dataclass(frozen=True)
class SimulatedData:
    """The data of a run. `name`: shown to people; `grouping`: the name of the batching, if samples are grouped."""

    name: str
    stored: Stored
    course: Course
    seed: int
    shuffled: bool
    batcher: Batcher = SAMPLES
    grouping: str | None = None
    dataset: Dataset | None = None

    @property
    def order(self) -> Order | None:
        """Return the order of a dataset's epoch; None for a mixture."""
        return self.course.order if isinstance(self.course, DatasetCourse) else None

    def steps(self, cluster: Cluster, loading: Loading) -> Callable[[int], Steps]:
        """Return how a rank's epochs are cut into steps."""

        @cache
        def of_rank(rank: int) -> Steps:
            size, node = loading.batch_size * cluster.world_size, cluster.ranks_per_node
            cut = Cut(size, rank, cluster.world_size, loading.drop_last, ranks_per_node=node)
            return self.batcher.steps(self.course, cut)

        return of_rank


def opened(
    urls: Sequence[str],
    *,
    proportions: Sequence[float] | None = None,
    seed: int = 0,
    shuffle: bool | Shuffle = True,
    batching: Batching | None = None,
    storage_options: StorageOptions | None = None,
) -> SimulatedData:
    """Open datasets; several are mixed. Only their indexes are read. `batching`: for packed rows or length-bounded
    batches. Raise MdsxError."""
    if batching is not None and batching.buckets is not None:
        raise UsageError("batches of one shape cannot be simulated yet", hint="simulate batches of samples")
    dataset: Dataset | Mixture
    if len(urls) == 1 and proportions is None:
        dataset = Dataset(urls[0], storage_options=storage_options)
    else:
        if proportions is not None and len(proportions) != len(urls):
            raise UsageError(
                "each dataset of a mixture needs a proportion",
                found=f"{len(proportions)} for {format_count(len(urls), 'dataset')}",
            )
        parts = urls if proportions is None else list(zip(urls, proportions, strict=True))
        dataset = Mixture(parts, storage_options=storage_options)
    view = view_of(dataset)
    course = course_of(dataset, view, seed, shuffle, None)
    only = dataset if isinstance(dataset, Dataset) else None
    batcher = (batching or SAMPLES).batcher(view, course, None, seed=seed, shuffle=bool(shuffle))
    grouping = type(batching).__name__ if batching is not None else None
    return SimulatedData(" + ".join(urls), stored_in(view), course, seed, bool(shuffle), batcher, grouping, only)


def labels_of(source: SimulatedData, column: str) -> Labels:
    """Read a column of all samples, and give equal values the same label. Raise UsageError."""
    if source.dataset is None:
        raise UsageError("a column's values can be counted only in one dataset", hint="give its URL alone")
    if (found := len(source.dataset)) > _MOST_LABELS:
        raise UsageError("too many samples to read a column of all", found=found, expected=_MOST_LABELS)
    values = source.dataset.select_columns([column]).take(np.arange(found))[column]
    numbers = dict[Any, int]()
    some = values.tolist() if isinstance(values, np.ndarray) else values
    try:
        labels = np.fromiter((numbers.setdefault(value, len(numbers)) for value in some), np.int64, found)
    except TypeError:  # an array, a list or a map
        hint = "give a column of numbers or of text"
        raise UsageError(f"the values of column {column!r} cannot be counted", hint=hint) from None
    return Labels(column, labels)


def invented(
    samples: int, sample_bytes: int, shard_bytes: int, *, seed: int = 0, shuffle: bool | Shuffle = True
) -> SimulatedData:
    """Make up a dataset. Raise UsageError."""
    stored = made_up(samples, sample_bytes, shard_bytes)
    chosen = shuffle if isinstance(shuffle, Shuffle) else Shuffle()
    order = Order(
        stored.counts, seed=seed, shuffle=bool(shuffle), lanes=chosen.lanes, shuffle_block=chosen.shuffle_block
    )
    return SimulatedData(MADE_UP, stored, DatasetCourse(order), seed, bool(shuffle))
