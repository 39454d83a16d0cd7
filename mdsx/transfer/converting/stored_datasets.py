"""Datasets that mdsx opens, as a source: its own format, MDS, indexed Parquet files and tars, and selections of them.

A unit is the selected part of a shard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsx.datasets import Dataset, excerpt_of
from mdsx.errors import FormatError, MdsxError, UsageError, shown
from mdsx.format import as_stored
from mdsx.shards import Columns, View, scan, stored_columns
from mdsx.stream import sound_columns
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Lost, Request, Row, SampleSource, Unit

_BLOCK, _BLOCK_BYTES = 4096, 2**24  # samples; bytes, where samples are read one by one


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
    ) -> Generator[Row | Block | Lost | MdsxError, None, None]:
        dataset = self._datasets[unit.file]
        view, done = View([excerpt_of(dataset.select(unit.start, unit.stop))]), unit.start
        try:
            for run in scan(view, most=_BLOCK, check=True):
                samples = len(run.samples)
                yield Block(self._given(view, run.columns), samples, partial(operator.add, done))
                done += samples
                count(unit.size * samples // (unit.stop - unit.start))
        except FormatError as error:
            yield from self._sound(dataset, done, unit.stop, error)

    def _sound(
        self, dataset: Dataset, first: int, stop: int, error: FormatError
    ) -> Generator[Block | Lost | MdsxError, None, None]:
        """Yield samples `first` to `stop` of a shard, which are not read together because of `error`: the undamaged
        ones, and the errors of the others."""
        view, lost, sound = View([excerpt_of(dataset.select(first, stop))]), list[tuple[int, MdsxError]](), True
        (shard,) = np.flatnonzero(view.counts)
        size = max(min(int(_BLOCK_BYTES / max(view.sample_bytes, 1)), _BLOCK), 1)
        for start in range(first, stop, size):
            numbers = np.arange(start - first, min(start + size, stop) - first)
            shards = np.full(len(numbers), shard)
            samples = view.stored(shards, numbers)
            try:
                columns, kept, wrong = sound_columns(view, shards, samples, view.select_undamaged, views=False)
            except FormatError as whole:
                yield from _lost(lost)
                yield Lost.of(whole, start, stop)
                return
            lost += [(start + place, wrong[place]) for place in sorted(wrong)]
            sound = sound and not wrong
            if len(kept):
                yield from _lost(lost)
                lost.clear()
                yield Block(self._given(view, columns), len(kept), partial(operator.getitem, start + kept))
        yield from _lost(lost)
        if sound:  # the damage is outside of the samples
            yield error

    def _given(self, view: View, columns: Columns) -> Columns:
        """Return columns under their new names, in the writer's form."""
        found = view.present(columns)
        found |= {name: as_stored(found[name]) for name in self._packaged}
        return {new: found[old] for old, new in self._names.items()}

    def place_of(self, place: int) -> str:
        return f"sample {place}"


def _lost(errors: Sequence[tuple[int, MdsxError]]) -> Iterator[Lost | MdsxError]:
    """Yield the errors of samples, given with their numbers. Join those of successive samples with one error, as of a
    damaged row group."""
    for _, same in groupby(enumerate(errors), lambda each: (each[1][0] - each[0], str(each[1][1]))):
        (_, (start, error)), *others = same
        yield Lost.of(error, start, start + len(others) + 1) if others else error


def _sizes(dataset: Dataset) -> NDArray[np.int64]:
    """Return about how many stored bytes are read from each shard."""
    excerpt = excerpt_of(dataset)
    index = excerpt.shards.index
    sizes: NDArray[np.float64] = index.sizes * (excerpt.subset.counts / np.maximum(index.counts, 1))
    return np.ceil(sizes).astype(np.int64)


def _file(dataset: Dataset) -> File:
    """Return a File that identifies a dataset."""
    return File(dataset.url, int(_sizes(dataset).sum()), "", excerpt_of(dataset).identity)


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
