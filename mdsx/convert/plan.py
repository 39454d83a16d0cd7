"""The definition of a conversion: sources, columns, options, and the parts that it is divided into.

The plan is kept in the output, in `_convert/plan.json`, until the dataset is finished, so that a rerun continues this
conversion and no other. Each part is a contiguous run of tars. The number of parts depends only on the sources and on
whether there are several processes, never on how many there are or how fast they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec
import xxhash

from mdsx.convert.sources import Source
from mdsx.convert.webdataset import Names
from mdsx.errors import CorruptError
from mdsx.format import filenames

MAX_PARTS = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """One conversion. A single part is written to `out` itself; several are written to `part-NNNNN/` below it."""

    out: str
    sources: tuple[Source, ...]
    columns: Mapping[str, str]
    shard_size: int
    compression: str | None
    names: Names
    nan: str
    on_error: str
    parts: int

    def part_url(self, part: int) -> str:
        return self.out if self.parts == 1 else f"{self.out.rstrip('/')}/{filenames.part(part)}"

    def part_sources(self, part: int) -> tuple[Source, ...]:
        count = len(self.sources)
        return self.sources[part * count // self.parts : (part + 1) * count // self.parts]

    @property
    def source_bytes(self) -> int:
        return sum(source.size for source in self.sources)

    @property
    def digest(self) -> str:
        """Differs between conversions that would give other samples or other shards.

        It depends on the tars' URLs, sizes and content, but not on a local file's times.
        """
        fields = asdict(self)
        for field in ("out", "on_error", "parts"):
            del fields[field]
        fields["sources"] = [source.identity for source in self.sources]
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(fields))

    def difference(self, other: Plan) -> str | None:
        """Return how `other` differs from this conversion; None if it may continue it."""
        for mine, theirs in ((asdict(self), asdict(other)), (asdict(self.names), asdict(other.names))):
            for field in ("shard_size", "compression", "nan", "key_until", "rename", "drop"):
                if mine.get(field) != theirs.get(field):
                    return f"{field} {theirs[field]}, not {mine[field]}"
        if list(self.columns.items()) != list(other.columns.items()):
            return f"columns {dict(other.columns)}, not {dict(self.columns)}"
        if len(self.sources) != len(other.sources):
            return f"{len(other.sources)} tars, not {len(self.sources)}"
        for old, new in zip(self.sources, other.sources, strict=True):
            if old.identity != new.identity:
                return f"{new.url} has changed" if old.url == new.url else f"{new.url}, not {old.url}"
        return None


def parts_for(sources: int, processes: int) -> int:
    """Return how many parts a new conversion has: one for one process, else one for each tar, up to MAX_PARTS."""
    return 1 if processes == 1 else min(sources, MAX_PARTS)


def encode_plan(plan: Plan) -> bytes:
    return msgspec.json.encode(asdict(plan))


def decode_plan(data: bytes, *, file: str) -> Plan:
    """Raise CorruptError."""
    try:
        return msgspec.json.decode(data, type=Plan)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"not a conversion's plan: {error}", file=file) from None
