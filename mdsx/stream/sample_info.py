"""What a run adds to its samples: each sample's origin, and a seed.

A sample's seed depends only on (seed, epoch, position). So it is the same after a resume, and for any number of ranks
and workers and any batch size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import UsageError
from mdsx.order import sample_seeds
from mdsx.shards import Columns, View

INFO_FIELDS = ("epoch", "position", "dataset", "sample", "seed")


class Info(dict[str, int]):
    """The fields of a sample, by name. `mdsx.torch.collate` stacks them into tensors of the right types."""


class Added(NamedTuple):
    """What is added to samples; None for what was not requested."""

    column: str | None
    fields: NDArray[np.int64] | None  # see SampleInfo.fields
    seeds: NDArray[np.uint64] | None
    to_transform: bool  # whether a transform gets the seeds too, not only decoders

    def to(self, columns: Columns, places: slice | NDArray[np.int64]) -> dict[str, Any]:
        """Add the column of the samples at `places` to `columns`; return the fields `info` and `seeds` of their
        Batch."""
        if self.column is not None and self.fields is not None:
            columns[self.column] = self.fields[places]
        return {
            "info": self.column,
            "seeds": self.seeds[places] if self.seeds is not None and self.to_transform else None,
        }


NOTHING_ADDED = Added(None, None, None, False)


class SampleInfo:
    """Finds what is added to samples: with `column`, the fields of INFO_FIELDS; with `seeds`, seeds for a transform."""

    def __init__(self, view: View, epoch_samples: int, seed: int, *, column: str | None, seeds: bool) -> None:
        if column is not None and column in [known.name for known in view.schema.columns]:
            raise UsageError(f"the dataset has a column {column!r} already", hint="give another info_column=")
        self.column, self._with_seeds = column, seeds
        self._view, self._epoch_samples, self._seed = view, epoch_samples, seed

    def of(self, ticks: NDArray[np.int64], shards: NDArray[np.int64], samples: NDArray[np.int64]) -> Added:
        """Return what to add to samples. Shards are numbered in the view, samples as stored."""
        if self.column is None:
            seeds = sample_seeds(self._seed, *np.divmod(ticks, self._epoch_samples))
            return Added(None, None, seeds, self._with_seeds)
        fields = self.fields(ticks, shards, samples)
        return Added(self.column, fields, np.ascontiguousarray(fields[:, -1]).view(np.uint64), self._with_seeds)

    def fields(
        self, ticks: NDArray[np.int64], shards: NDArray[np.int64], samples: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the fields of samples, int64 [n, 5]; a seed is the int64 with its bits."""
        epochs, positions = np.divmod(ticks, self._epoch_samples)
        datasets = np.searchsorted(self._view.firsts, shards, side="right") - 1
        seeds = sample_seeds(self._seed, epochs, positions).view(np.int64)
        return np.stack((epochs, positions, datasets, self._stored_firsts[shards] + samples, seeds), axis=1)

    @cached_property
    def _stored_firsts(self) -> NDArray[np.int64]:
        """int64 [shards]: the number of each shard's first sample in its dataset."""
        counts = [excerpt.shards.index.counts for excerpt in self._view.excerpts]
        return np.concatenate([np.cumsum(each) - each for each in counts])


def info_columns(fields: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return each of the fields by its name: int64 [n], and uint64 [n] for the seed."""
    columns: dict[str, NDArray[Any]] = dict(zip(INFO_FIELDS, np.ascontiguousarray(fields.T), strict=True))
    return {**columns, "seed": columns["seed"].view(np.uint64)}


def info_records(fields: NDArray[np.int64]) -> list[Info]:
    """Return the fields of each sample, by name."""
    columns = [values.tolist() for values in info_columns(fields).values()]
    return [Info(zip(INFO_FIELDS, values, strict=True)) for values in zip(*columns, strict=True)]


def generator(seed: int) -> np.random.Generator:
    """Return a NumPy generator for a sample's seed."""
    return np.random.Generator(np.random.PCG64(seed))
