"""The formats under contract (`mdsx.testing`): how to write a dataset of each, and what it promises.

To put another format of mdsx under contract, add a `Subject` here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import mdsx
from mdsx.foreign.mds import MdsFormat
from mdsx.foreign.parquet import ParquetFormat
from mdsx.foreign.tars import TarsFormat
from mdsx.format import ReadsExtents, ReadsParts, ReadsSamples, ReadsWhole
from mdsx.shards import OURS
from mdsx.testing.subject import COLUMNS, Shards, Subject
from tests.foreign.mds import plain
from tests.foreign.tars.indexed import write_indexed
from tests.shards.formats.documents import DocumentsFormat, write_documents
from tests.shards.formats.json_lines import IndexFields, LinesFormat, ShardFields
from tests.shards.formats.more_lines import MoreFormat, write_more


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
