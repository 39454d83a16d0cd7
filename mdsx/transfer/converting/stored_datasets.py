"""Datasets that mdsx opens, as a source: its own format, MDS, indexed Parquet files and tars, and selections of them.

A unit is the selected part of a shard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsx.datasets import Dataset, excerpt_of
from mdsx.errors import CorruptError, FormatError, MdsxError, UsageError, shown
from mdsx.format import as_stored
from mdsx.shards import View, scan, stored_columns
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit

_BLOCK = 4096  # samples


def open_source(request: Request) -> StoredDatasets:
    """Return the source of datasets, one after the other. Raise UsageError, MissingError or FormatError."""
    return StoredDatasets(request)


class StoredDatasets(SampleSource):
    """Datasets with the same columns. The sources of the request are URLs or `mdsx.Dataset`s."""

    kind: ClassVar[str] = "dataset"

    def __init__(self, request: Request) -> None:
        naming = Naming.parse(request.rename, request.drop, request.declared, request.only)
        self._datasets = list(_opened(request))
        if not self._datasets:
            raise UsageError("no dataset is named")
        first = self._datasets[0]
        files, units = list[File](), list[Unit]()
        self._names = naming.names(first.columns, file=first.url)
        self._types = {name: first.columns[name] for name in self._names}
        as_read = stored_columns(excerpt_of(first.select_columns([*self._names])).schema)
        self._packaged = {name for name, read in as_read.items() if read != name}
        for number, dataset in enumerate(self._datasets):
            found = dict(dataset.select_columns([*self._names]).columns)
            if found != self._types:
                message, expected = "the datasets have different columns", shown(self._types)
                raise UsageError(message, file=dataset.url, found=shown(found), expected=expected)
            self._datasets[number] = dataset.select_columns(as_read)
            files.append(_file(self._datasets[number]))
            units += _units(number, self._datasets[number])
        if not units:
            raise UsageError("there is no sample in the datasets", file=first.url)
        self.files, self.units = files, units
        self.settings = naming.settings

    def columns(self) -> tuple[dict[str, str], list[str]]:
        return {new: self._types[name] for name, new in self._names.items()}, []

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        dataset = self._datasets[unit.file]
        view, done = View([excerpt_of(dataset.select(unit.start, unit.stop))]), unit.start
        try:
            for run in scan(view, most=_BLOCK, check=True):
                found, samples = view.present(run.columns), len(run.samples)
                found |= {name: as_stored(found[name]) for name in self._packaged}
                yield Block({new: found[old] for old, new in self._names.items()}, samples, partial(operator.add, done))
                done += samples
                count(unit.size * samples // (unit.stop - unit.start))
        except FormatError as error:
            yield self._named(error, dataset, done, unit.stop)

    def _named(self, error: FormatError, dataset: Dataset, first: int, stop: int) -> FormatError:
        """Read samples from `first` on one by one, and return the error of the first damaged one, which names it."""
        if isinstance(error, CorruptError):
            try:
                for number in range(first, stop):
                    dataset[number]
            except FormatError as found:
                return found
        return error

    def place_of(self, place: int) -> str:
        return f"sample {place}"


def _sizes(dataset: Dataset) -> NDArray[np.int64]:
    """Return about how many stored bytes are read from each shard."""
    excerpt = excerpt_of(dataset)
    index = excerpt.shards.index
    sizes: NDArray[np.float64] = index.sizes * (excerpt.subset.counts / np.maximum(index.counts, 1))
    return np.ceil(sizes).astype(np.int64)


def _file(dataset: Dataset) -> File:
    """Return a File that identifies a dataset."""
    return File(dataset.url, int(_sizes(dataset).sum()), "", dataset.fingerprint)


def _units(number: int, dataset: Dataset) -> Iterator[Unit]:
    counts = excerpt_of(dataset).subset.counts
    stops = np.cumsum(counts)
    for count, stop, size in zip(counts.tolist(), stops.tolist(), _sizes(dataset).tolist(), strict=True):
        if count:
            yield Unit(number, stop - count, stop, size)


def _opened(request: Request) -> Iterator[Dataset]:
    for source in request.sources:
        if isinstance(source, Dataset):
            yield source
        else:
            yield Dataset(source, storage_options=request.options)
