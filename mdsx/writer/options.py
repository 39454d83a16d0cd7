"""What the bytes of a dataset depend on, beside its samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mdsx.errors import UsageError, shown
from mdsx.format import Schema, join_name
from mdsx.sizes import parse_size

INDEX_KEY = "index.json"

_COMPRESSION = re.compile(r"zstd(?::([1-9]|1[0-9]|2[0-2]))?")
_DEFAULT_LEVEL = 3
_SHARD = re.compile(r"shard\.([0-9]{5,})\.mdsx(\.zst)?")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a writer, parsed. `level` is zstd's, None without compression."""

    schema: Schema
    shard_size: int
    level: int | None

    @classmethod
    def parse(cls, columns: Mapping[str, str], shard_size: int | str, compression: str | None) -> Options:
        """Raises UsageError."""
        schema = Schema.from_columns(columns)
        return cls(schema, parse_size(shard_size, name="shard_size"), _parse_level(compression))

    @property
    def compression(self) -> str | None:
        """As the index names it."""
        return None if self.level is None else "zstd"

    def shard_key(self, number: int) -> str:
        return join_name("shard.", ".mdsx" if self.level is None else ".mdsx.zst", number)


def shard_number(key: str) -> int | None:
    """The number in the key of a shard, compressed or not; None for any other key."""
    match = _SHARD.fullmatch(key)
    if match is None or (len(match[1]) > 5 and match[1][0] == "0"):
        return None
    return int(match[1])


def _parse_level(compression: str | None) -> int | None:
    if compression is None:
        return None
    match = _COMPRESSION.fullmatch(compression) if isinstance(compression, str) else None
    if match is None:
        raise UsageError(
            "there is no such compression", found=shown(compression), expected="None, 'zstd', or 'zstd:1' to 'zstd:22'"
        )
    return int(match[1] or _DEFAULT_LEVEL)
