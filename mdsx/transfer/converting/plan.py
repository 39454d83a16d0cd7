"""The plan of a conversion, kept in its output until the dataset is finished, so that a rerun continues only the same
conversion.

Each part is a contiguous run of units. The number of parts depends on the source and the size of shards, never on the
number of processes. So neither does the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash

from mdsx.errors import CorruptError, UsageError, shown
from mdsx.format import filenames
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.source import SampleSource, Unit

MAX_PARTS = 256


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """One conversion. A single part is written to `out` itself, several parts to `part-NNNNN/` below it.

    `run`: the run of a conversion that replaces a dataset, whose parts are written to folders of the run; otherwise "".
    """

    out: str
    kind: str
    files: tuple[File, ...]
    units: tuple[Unit, ...]
    settings: Mapping[str, Any]
    columns: Mapping[str, str]
    shard_size: int
    compression: str | None
    on_error: str
    parts: int
    run: str = ""

    @classmethod
    def of(
        cls,
        source: SampleSource,
        out: str,
        columns: Mapping[str, str],
        *,
        shard_size: int,
        compression: str | None,
        on_error: str,
        parts: int | None = None,
    ) -> ConversionPlan:
        """Return the plan of a new conversion, in `parts` parts or a number that suits its size.

        Raise UsageError if an option is not Unicode text.
        """
        units = tuple(source.units)
        if parts is None:
            parts = min(-(-sum(unit.size for unit in units) // shard_size), MAX_PARTS)
        try:
            settings = msgspec.json.decode(msgspec.json.encode(source.settings))
        except UnicodeEncodeError as error:
            message = "a name in an option, such as drop or rename, is not Unicode text: it holds a surrogate"
            raise UsageError(message, found=shown(error.object), hint="leave it out, or correct it") from None
        parts = max(min(parts, len(units)), 1)
        return cls(
            out, source.kind, tuple(source.files), units, settings, columns, shard_size, compression, on_error, parts
        )

    def part_url(self, part: int) -> str:
        if self.parts == 1 and not self.run:
            return self.out
        folder = filenames.run_part(self.run, part) if self.run else filenames.part(part)
        return f"{self.out.rstrip('/')}/{folder}"

    def records_url(self, part: int) -> str:
        """Return where a part's record is kept until the part is finished."""
        return self.part_url(part) if self.run else self.out

    def part_units(self, part: int) -> tuple[Unit, ...]:
        count = len(self.units)
        return self.units[part * count // self.parts : (part + 1) * count // self.parts]

    @property
    def source_bytes(self) -> int:
        return sum(unit.size for unit in self.units)

    @property
    def digest(self) -> str:
        """Return a hash that differs between conversions to different samples or shards.

        It depends on the files' URLs, sizes and content, but neither on the times of local files nor on the number of
        parts.
        """
        identities = [file.identity for file in self.files]
        fields = self.kind, identities, self.units, self.settings, list(self.columns.items())
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode((*fields, self.shard_size, self.compression)))

    def difference(self, other: ConversionPlan) -> str | None:
        """Return how `other` differs from this conversion; None if it may continue it."""
        if self.kind != other.kind:
            return f"convert {other.kind}, not {self.kind}"
        mine, theirs = ({"shard_size": each.shard_size, "compression": each.compression, **each.settings}
                        for each in (self, other))  # fmt: skip
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                return f"{name} {theirs.get(name)}, not {mine.get(name)}"
        if list(self.columns.items()) != list(other.columns.items()):
            return f"columns {dict(other.columns)}, not {dict(self.columns)}"
        if len(self.files) != len(other.files):
            return f"{len(other.files)} files, not {len(self.files)}"
        for old, new in zip(self.files, other.files, strict=True):
            if old.identity != new.identity:
                return (
                    f"{new.url} has changed, or is read in another way"
                    if old.url == new.url
                    else f"{new.url}, not {old.url}"
                )
        return None if self.units == other.units else "another version of mdsx divided the files differently"


def encode_plan(plan: ConversionPlan) -> bytes:
    return msgspec.json.encode(plan)


def decode_plan(data: bytes, *, file: str) -> ConversionPlan:
    """Return a stored plan. Raise CorruptError."""
    try:
        return msgspec.json.decode(data, type=ConversionPlan)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(f"not a conversion's plan: {error}", file=file) from None
