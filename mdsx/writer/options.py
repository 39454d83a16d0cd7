"""The parsed options of a writer. A dataset's bytes depend only on them and on its samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mdsx.base.sizes import parse_size
from mdsx.errors import UsageError, shown
from mdsx.format import DEFAULT_LEVEL, Schema, filenames
from mdsx.shards import column_of

_COMPRESSION = re.compile(r"zstd(?::([1-9]|1[0-9]|2[0-2]))?")


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The parsed options of a writer. `level` is zstd's, None without compression."""

    schema: Schema
    shard_size: int
    level: int | None

    @classmethod
    def parse(cls, columns: Mapping[str, str], shard_size: int | str, compression: str | None) -> WriterOptions:
        """Parse a writer's arguments. Raise UsageError."""
        schema = Schema.from_columns(columns)
        return cls(schema, parse_size(shard_size, name="shard_size"), _parse_level(compression))

    @property
    def compression(self) -> str | None:
        """Return the name of the compression in the index."""
        return None if self.level is None else "zstd"

    def shard_key(self, number: int) -> str:
        return filenames.shard(number, compressed=self.level is not None)


def checked_lengths(schema: Schema, lengths: Sequence[str], url: str) -> tuple[str, ...]:
    """Return the columns whose lengths are stored. Raise UsageError for one that has no lengths."""
    if isinstance(lengths, str):
        raise UsageError("lengths must be a list of column names", found=shown(lengths))
    for name in lengths:
        column_of(schema, name, url=url)
    return tuple(lengths)


def _parse_level(compression: str | None) -> int | None:
    if compression is None:
        return None
    match = _COMPRESSION.fullmatch(compression) if isinstance(compression, str) else None
    if match is None:
        raise UsageError(
            "unknown compression", found=shown(compression), expected="None, 'zstd', or 'zstd:1' to 'zstd:22'"
        )
    return int(match[1] or DEFAULT_LEVEL)
