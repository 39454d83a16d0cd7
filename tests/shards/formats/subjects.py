"""The formats under contract, and the samples that each of them stores.

To put another format under contract, add a `Subject` here: how to write a dataset of it, and what it promises.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import mdsx
from mdsx.foreign.mds import MdsFormat
from mdsx.foreign.parquet import ParquetFormat
from mdsx.foreign.tars import TarsFormat
from mdsx.format import ReadsExtents, ReadsParts, ReadsSamples, ReadsWhole, StoredFormat
from mdsx.shards import OURS
from tests.foreign.mds import plain
from tests.foreign.tars.indexed import write_indexed
from tests.shards.formats.documents import DocumentsFormat, write_documents
from tests.shards.formats.json_lines import IndexFields, LinesFormat, ShardFields
from tests.shards.formats.more_lines import MoreFormat, write_more

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
"""Numbers of the first sample of a dataset, and of another one, with other samples of the same sizes."""


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
    """Return a sample that was read, as `sample` gives it."""
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
        """Whether single samples are read from storage."""
        return self.reads in (ReadsSamples, ReadsExtents)

    @property
    def ours(self) -> bool:
        return self.format.name == OURS.name

    def expected(self, number: int) -> Sample:
        """Return the sample with this number, with the columns that the format stores."""
        found = sample(number)
        return {name: found[name] for name in self.columns}


def _write_ours(folder: Path, shards: Shards) -> None:
    columns = {name: COLUMNS[name] for name in shards[0][0]}
    for number, samples in enumerate(shards):
        with mdsx.Writer(folder / f"part-{number:05}", columns) as out:
            for each in samples:
                out.write(each)
    mdsx.merge(folder)


def _write_lines(folder: Path, shards: Shards) -> None:
    folder.mkdir()
    entries = []
    for number, samples in enumerate(shards):
        data = b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)
        entries.append(ShardFields(f"{number:05}.lines", len(samples), len(data), xxhash.xxh3_128_hexdigest(data)))
        (folder / entries[-1].name).write_bytes(data)
    columns = {name: COLUMNS[name] for name in shards[0][0]}
    (folder / LinesFormat.index_key).write_bytes(msgspec.json.encode(IndexFields("lines", columns, entries)))


def _write_more(folder: Path, shards: Shards, kind: Literal["compressed", "ranged", "packed"]) -> None:
    write_more(folder, {name: COLUMNS[name] for name in shards[0][0]}, shards, kind)


_MDS = {"data": "bytes", "extra": "json", "id": "int", "text": "str", "vector": "ndarray:float32:3"}


def _write_mds(folder: Path, shards: Shards, hashes: Sequence[str]) -> None:
    asarray = __import__("numpy").asarray
    stored = [[{**each, "vector": asarray(each["vector"], "<f4")} for each in samples] for samples in shards]
    plain.write_dataset(folder, _MDS, stored, hashes)


def _write_parquet(folder: Path, shards: Shards) -> None:
    """Two files, with pages that have checksums."""
    folder.mkdir()
    parts = [pa.Table.from_pylist(list(samples)) for samples in shards]
    vector = pa.list_(pa.float32(), 3)
    for name, groups in {"0.parquet": parts[:1], "1.parquet": parts[1:]}.items():
        schema = groups[0].schema.set(groups[0].schema.get_field_index("vector"), pa.field("vector", vector))
        with pq.ParquetWriter(folder / name, schema, write_page_checksum=True) as out:
            for group in groups:
                out.write_table(group.cast(schema))
    mdsx.index_parquet(folder)


def _write_tars(folder: Path, shards: Shards, *, checksums: bool = True) -> None:
    write_indexed(folder, {name: COLUMNS[name] for name in shards[0][0]}, shards, checksums=checksums)


_JSON = [name for name in COLUMNS if name != "data"]  # JSON has no bytes

SUBJECTS = [
    Subject("ours", OURS, [*COLUMNS], ReadsSamples, _write_ours),
    Subject("lines", LinesFormat(), _JSON, ReadsWhole, _write_lines),
    Subject("compressed", MoreFormat(), _JSON, ReadsWhole, partial(_write_more, kind="compressed")),
    Subject("ranged", MoreFormat(), _JSON, ReadsSamples, partial(_write_more, kind="ranged")),
    Subject("packed", MoreFormat(), _JSON, ReadsParts, partial(_write_more, kind="packed")),
    Subject("parquet", ParquetFormat(), [*COLUMNS], ReadsParts, _write_parquet, projects=True),
    Subject("tar", TarsFormat(), [*COLUMNS], ReadsSamples, _write_tars),
    Subject("tar-headers", TarsFormat(), [*COLUMNS], ReadsSamples, partial(_write_tars, checksums=False), proves=False),
    Subject("documents", DocumentsFormat(), _JSON, ReadsExtents, partial(write_documents, hash=False), proves=False),
    Subject("documents-hashes", DocumentsFormat(), _JSON, ReadsExtents, partial(write_documents, hash=True)),
    Subject("mds", MdsFormat(), [*_MDS], ReadsSamples, partial(_write_mds, hashes=[]), proves=False),
    Subject("mds-hashes", MdsFormat(), [*_MDS], ReadsWhole, partial(_write_mds, hashes=["sha1", "xxh64"])),
]

SOME = list({(subject.format.name, subject.reads): subject for subject in reversed(SUBJECTS)}.values())
"""One for each format and way of reading: a test with a server or a command is expensive."""


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
