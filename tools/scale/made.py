"""Datasets of many shards or parts that are made up: every shard is the same, and only the names differ.

So an index or a bucket of millions of objects takes seconds to make, and everything that reads it works as with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xxhash
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

import mdsx
from mdsx.format import Index, Schema, ShardEntry, build_index, filenames, join_indexes, parse_index
from tools.servers.web import serving

COLUMNS = {"id": "int64", "data": "bytes"}
SAMPLES = 16  # of a made-up shard
_BYTES = 16  # of each sample


@dataclass(frozen=True, slots=True)
class Made:
    """A shard, and its entry in an index."""

    shard: bytes
    entry: ShardEntry

    def part(self, shards: int) -> bytes:
        """Return the index of a part of that many shards."""
        index = index_of(self.entry, shards)
        return join_indexes(index.schema, None, [("", index)], {"run": 16 * "0"})

    def whole(self, parts: int, shards: int) -> bytes:
        """Return the index over that many parts of `shards` each."""
        part = index_of(self.entry, shards)
        return join_indexes(part.schema, None, [(folder, part) for folder in folders(parts)])


def index_of(entry: ShardEntry, shards: int) -> Index:
    """Return an index of that many shards that all have the same entry, but for their names."""
    one = parse_index(build_index(Schema.from_columns(COLUMNS), None, [entry]))
    (prefix, suffix, _, _), *_ = one.files
    return replace(
        one,
        samples=shards * entry.samples,
        counts=np.repeat(one.counts, shards),
        row_keys=np.repeat(one.row_keys, shards),
        sizes=np.repeat(one.sizes, shards),
        hashes=np.repeat(one.hashes, shards, axis=0),
        raw_sizes=np.repeat(one.raw_sizes, shards),
        raw_hashes=np.repeat(one.raw_hashes, shards, axis=0),
        files=((prefix, suffix, 0, shards),) if shards else (),
    )


def make(samples: int = SAMPLES) -> Made:
    """Make the shard that all are copies of."""
    with TemporaryDirectory() as directory:
        with mdsx.Writer(directory, COLUMNS) as writer:
            for number in range(samples):
                writer.write({"id": number, "data": bytes(_BYTES)})
        index = parse_index(Path(directory, filenames.INDEX).read_bytes())
        return Made(Path(directory, index.name(0)).read_bytes(), index.shard_entry(0))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the index in `folder` and its first shard, as each shard, while the context lasts; yield the URL."""

    def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name != filenames.INDEX and not filenames.is_of_dataset(name):
            return Response(status_code=404)
        return FileResponse(folder / (name if name == filenames.INDEX else filenames.shard(0, compressed=False)))

    with serving(Starlette(routes=[Route("/{name}", answer)])) as url:
        yield url


def folders(parts: int) -> list[str]:
    """Return the names of the folders of parts, as Spark's tasks name them."""
    return [
        filenames.run_part("0" * 16, number, xxhash.xxh3_64_hexdigest(str(number).encode())) for number in range(parts)
    ]
