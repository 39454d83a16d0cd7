"""A stored format, JSON lines: `acme-lines.json` is the index; a shard is a file with a line for each sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec
import xxhash

from mdsx import CorruptError
from mdsx.format import Schema, WholeIndex, WholeShard


class Fields(msgspec.Struct, forbid_unknown_fields=True):
    """The index: columns, name -> type, and shards with `name`, `samples`, `size` and `hash`."""

    format: Literal["acme-lines"]
    columns: dict[str, str]
    shards: list[WholeShard]


class LinesFormat:
    name, index_key = "acme-lines", "acme-lines.json"
    files: ClassVar[Mapping[str, str]] = {"lines": "copy the acme-lines.json that names these files here too"}

    def recognizes(self, data: bytes) -> bool:
        return True  # nothing else has this key

    def parse_index(self, data: bytes, *, file: str) -> LinesIndex:
        try:
            found = msgspec.json.decode(data, type=Fields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"the index is damaged: {error}", file=file) from None
        schema = Schema.from_pairs(found.columns.items(), file=file)
        return LinesIndex(schema, found.shards, xxhash.xxh3_128_hexdigest(data), file)


class LinesIndex(WholeIndex):
    format = LinesFormat.name
    least = 2  # bytes of a sample: a brace and a line feed

    def samples_of(self, data: memoryview, *, file: str) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for line in bytes(data).splitlines()]
