"""The merge of many parts: by `mdsx.merge`, and by the driver of an engine, on a disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import xxhash

import mdsx
from mdsx.format import filenames, parse_index
from mdsx.storage import open_storage
from mdsx.writer.runs import Done, Driver
from tools.pages import table
from tools.scale.made import COLUMNS, SAMPLES, folders, make
from tools.scale.measured import HEADS, measured
from tools.scale.server import MadeServer

PARTS = 100_000
MANY = 40  # shards of a part; a tenth of the parts has them, so that this takes minutes


def sections(share: float = 1.0) -> Iterator[tuple[str, str]]:
    parts = max(int(PARTS * share), 2)
    rows = []
    with TemporaryDirectory(prefix="mdsx-scale-") as directory:
        write(Path(directory), parts)
        figures = measured("tools.scale.merge:merge", url=directory, parts=parts, shards=1)
        rows.append(["`mdsx merge` on a disk", f"{parts:,} x 1", *figures.cells])
        yield _table(rows)
    for function, title, number, shards in (
        ("merge", "`mdsx merge` in a bucket", parts, 1),
        ("commit", "the driver's commit in a bucket", parts, 1),
        ("commit", "the driver's commit in a bucket", -(-parts // 10), MANY),
    ):
        engine = function == "commit"
        with MadeServer(number, shards, index=False, attempts=engine, late=engine) as server:
            where = f"tools.scale.merge:{function}"
            figures = measured(where, server, url=server.url, parts=number, shards=shards)
        rows.append([title, f"{number:,} x {shards}", *figures.cells])
        yield _table(rows)


def _table(rows: list[list[str]]) -> tuple[str, str]:
    return "merge", table(["", "parts x shards", *HEADS], rows, right=range(2, 5))


def write(directory: Path, parts: int) -> None:
    """Write parts of one shard each to a disk: real files."""
    made = make()
    index, shard = made.part(1), filenames.shard(0, compressed=False)
    for folder in folders(parts, attempts=False):
        place = directory / folder
        place.mkdir()
        (place / filenames.INDEX).write_bytes(index)
        (place / shard).write_bytes(made.shard)


def merge(url: str, parts: int, shards: int) -> int:
    """Merge, and return the size of the index."""
    mdsx.merge(url, parts=parts)
    return checked(url, parts, shards)


def commit(url: str, parts: int, shards: int) -> int:
    """Commit attempts, and return the size of the index."""
    digest = xxhash.xxh3_128_hexdigest(make().part(shards))
    driver = Driver.begin(url, COLUMNS)
    driver.commit([Done(n, folder, SAMPLES * shards, digest) for n, folder in enumerate(folders(parts))])
    return checked(url, parts, shards)


def checked(url: str, parts: int, shards: int) -> int:
    """Return the size of the index over the parts. Raise AssertionError if it is not of all of them."""
    data = open_storage(url).get(filenames.INDEX).data
    index = parse_index(data)
    assert len(index.counts) == parts * shards
    assert index.samples == parts * shards * SAMPLES
    return len(data)
