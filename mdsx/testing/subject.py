"""A `Subject`: a stored format under contract, its samples and its promises."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mdsx
from mdsx.format import ReadsExtents, ReadsSamples, StoredFormat
from mdsx.shards import OURS

Sample = dict[str, Any]

COLUMNS = {
    "data": "bytes",
    "extra": "json",
    "id": "int64",
    "maybe": "str?",
    "text": "str",
    "vector": "float32[3]",
}
COMMON = {name: COLUMNS[name] for name in ("id", "text", "vector", "extra")}
"""The columns that all formats store."""

PER_SHARD, SHARDS = 12, 5
COUNT = PER_SHARD * SHARDS
FIRST, OTHER = 1000, 9400
"""Numbers of the first sample of a dataset, and of another dataset with other samples of the same sizes."""


def sample(number: int) -> Sample:
    return {
        "data": bytes([number % 251]) * (number % 4),
        "extra": {"number": number, "list": [1, None]},
        "id": number,
        "maybe": None if number % 3 else f"maybe {number}",
        "text": f"text {number} " * (1 + number % 5),
        "vector": [float(number), 0.5, -1.0],
    }


def plain_values(found: Sample) -> Sample:
    """Return a sample that was read, in the form of `sample`."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}


def shards_of(columns: Sequence[str], first: int) -> list[list[Sample]]:
    samples = [sample(number) for number in range(first, first + COUNT)]
    chosen = [{name: each[name] for name in columns} for each in samples]
    return [chosen[start : start + PER_SHARD] for start in range(0, COUNT, PER_SHARD)]


Shards = Sequence[Sequence[Sample]]


@dataclass(frozen=True)
class Subject:
    """A format under contract.

    Attributes:
        name: For the names of tests.
        format: The format.
        columns: The names of the columns of `COLUMNS` that it stores, in the order of its schema.
        reads: How its shards are read from storage: `ReadsWhole`, `ReadsParts`, `ReadsExtents` or `ReadsSamples`.
        write: Writes shards of samples with these columns to a new folder.
        proves: Whether it finds each change of a byte that would change a value. Otherwise only sizes and structure are
            checked, and `StoredIndex.checks` says so.
        projects: Whether it can fetch columns apart.
    """

    name: str
    format: StoredFormat
    columns: Sequence[str]
    reads: type
    write: Callable[[Path, Shards], object]
    proves: bool = True
    projects: bool = False

    def __post_init__(self) -> None:
        missing = COMMON.keys() - set(self.columns)
        assert not missing, f"{self.name} must store {sorted(missing)}: tests read these columns of every format"

    def __str__(self) -> str:
        return self.name

    @property
    def by_sample(self) -> bool:
        """Return whether single samples are read from storage."""
        return self.reads in (ReadsSamples, ReadsExtents)

    @property
    def ours(self) -> bool:
        return self.format.name == OURS.name

    def expected(self, number: int) -> Sample:
        """Return the sample with this number, with the columns that the format stores."""
        found = sample(number)
        return {name: found[name] for name in self.columns}


# --- ways of reading


def by_number(data: mdsx.Dataset) -> Iterator[Sample]:
    yield from (data[number] for number in range(len(data)))


def by_slice(data: mdsx.Dataset) -> Iterator[Sample]:
    yield from data[:7]
    yield from data[7:]


def by_take(data: mdsx.Dataset) -> Iterator[Sample]:
    order = random.Random(1).sample(range(len(data)), len(data))
    columns = data.take(order)
    found = {place: {name: values[i] for name, values in columns.items()} for i, place in enumerate(order)}
    yield from (found[place] for place in range(len(data)))


def by_parts(data: mdsx.Dataset) -> Iterator[Sample]:
    yield from itertools.chain(data.select(0, 20), data.select(20, len(data)))


WAYS: dict[str, Callable[[mdsx.Dataset], Iterator[Sample]]] = {
    "number": by_number,
    "slice": by_slice,
    "take": by_take,
    "iteration": iter,
    "selection": by_parts,
}


def all_of(data: Any) -> list[Sample]:
    return [plain_values(found) for found in data]
