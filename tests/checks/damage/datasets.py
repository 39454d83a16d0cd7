"""Datasets to damage: their samples, and the owner of each of their bytes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

import mdsx
from mdsx.format import Index, parse_index
from tests.format.owners import owners

COLUMNS = {"text": "str", "number": "int64", "blob": "bytes?", "flag": "bool"}
FRAME = 2**20

Samples = list[dict[str, Any]]


def samples(count: int, *, seed: int = 1, blob: int = 50) -> Samples:
    rng = random.Random(seed)
    return [
        {
            "text": f"text {number}",
            "number": number,
            "blob": rng.randbytes(rng.randrange(blob)) if number % 3 else None,
            "flag": number % 2 == 0,
        }
        for number in range(count)
    ]


def write(url: str | Path, written: Samples, **options: Any) -> None:
    with mdsx.Writer(url, COLUMNS, **{"shard_size": 3000, **options}) as out:
        for sample in written:
            out.write(sample)


def write_parts(url: str | Path, written: Samples, parts: int, **options: Any) -> None:
    for part in range(parts):
        span = slice(part * len(written) // parts, (part + 1) * len(written) // parts)
        write(f"{url}/part-{part:05d}", written[span], **options)
    mdsx.merge(url)


def read(url: str | Path) -> Samples:
    """Return all samples in order, each checked while it is read."""
    return mdsx.Dataset(url)[:]


def index_of(root: Path) -> Index:
    return parse_index((root / "index.json").read_bytes())


def holds(frame: bytes | bytearray, raw: bytes) -> bool:
    """Return whether a zstd frame still holds these bytes: some of its bits have no meaning."""
    try:
        sized = zstandard.get_frame_parameters(frame).content_size == len(raw)  # otherwise it would be allocated
        return sized and zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False) == raw
    except zstandard.ZstdError:
        return False


class Where(NamedTuple):
    """A stored file, with the number in the dataset of the sample that owns each of its bytes (None: of no sample)."""

    path: Path
    stored: bytes
    whose: list[int | None]
    checksums: set[int]
    """The offsets of the rows' stored checksums."""

    def lost(self, places: Iterable[int]) -> set[int]:
        """Return the samples that are lost with these bytes. A sample that loses only its checksum is not lost."""
        places = list(places)
        found = {self.whose[place] for place in places if place not in self.checksums} - {None}
        if found:
            found |= {self.whose[place] for place in places}
        return {sample for sample in found if sample is not None}


def plain_shards(root: Path) -> list[Where]:
    """Return the shards of a dataset that is not compressed."""
    index, found, first = index_of(root), [], 0
    for shard in range(len(index.counts)):
        path = root / index.name(shard)
        stored = path.read_bytes()
        own = owners(stored)
        whose = [None if owner.sample is None else first + owner.sample for owner in own]
        checksums = {place for place, owner in enumerate(own) if owner.part == "checksum"}
        found.append(Where(path, stored, whose, checksums))
        first += int(index.counts[shard])
    return found
