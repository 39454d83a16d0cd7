"""Datasets read by distributed engines: cut at shards, and read as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.datasets import Dataset, decoded, excerpt_of
from mdsx.foreign.arrow import to_table
from mdsx.shards import View

_RUN = 2**16  # samples of a table


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples `start` to `stop` (exclusive) of a dataset, with about `size` uncompressed bytes."""

    start: int
    stop: int
    size: int


def pieces_of(dataset: Dataset, most: int) -> list[Piece]:
    """Cut a dataset at shards into at most `most` pieces of about the same size, in order. No piece is empty."""
    sizes = shard_sizes(dataset)
    samples = np.concatenate(([0], np.cumsum(excerpt_of(dataset).subset.counts, dtype=np.int64)))
    stops = np.cumsum(sizes)
    total = float(stops[-1]) if len(stops) else 0.0
    cuts = np.searchsorted(stops, np.arange(1, most) * (total / most), side="left") + 1
    edges = np.unique(np.concatenate(([0], np.minimum(cuts, len(sizes)), [len(sizes)])))
    found = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if samples[first] < samples[last]:
            found.append(Piece(int(samples[first]), int(samples[last]), int(sizes[first:last].sum())))
    return found


def shard_sizes(dataset: Dataset) -> NDArray[np.float64]:
    """Return about how many uncompressed bytes the samples of each shard have."""
    excerpt = excerpt_of(dataset)
    view = View([excerpt])
    sizes: NDArray[np.float64] = excerpt.subset.counts * view.mean_sizes[: len(view.counts)]
    return sizes


def tables(dataset: Dataset, start: int, stop: int) -> Iterator[Any]:
    """Yield samples `start` to `stop` (exclusive), in order, as `pyarrow.Table`s. See `decoded`."""
    schema = View([excerpt_of(dataset)]).schema
    return decoded(dataset, start, stop, lambda columns, first: to_table(schema, columns), most=_RUN)
