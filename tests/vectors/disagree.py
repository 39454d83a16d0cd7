"""Datasets whose index and shards are each right, but differ in one point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.format import reference
from tests.format.by_the_book import shard

_COLUMNS = {"id": "uint16", "text": "str"}
_SHARD = shard(_COLUMNS, [{"id": b"\1\0", "text": b"x" * 200}, {"id": b"\2\0", "text": b"two"}])
_STORED = reference.compressed(_SHARD)


@dataclass(frozen=True, slots=True)
class Disagree:
    """A folder, the wrong statement of its index about its only shard, and words of mdsx's error."""

    name: str
    about: str
    says: str
    rule: str
    files: dict[str, bytes]


def datasets() -> list[Disagree]:
    def made(
        name: str, about: str, says: str, rule: str, change: Callable[[Any], object], zstd: bool = False
    ) -> Disagree:
        index = reference.index(_COLUMNS, [_STORED if zstd else _SHARD], [_SHARD] if zstd else None)
        change(index)
        index["fingerprint"] = reference.fingerprint(index)
        stored = {"shard.00000.mdsx.zst": _STORED} if zstd else {"shard.00000.mdsx": _SHARD}
        return Disagree(name, about, says, f"index: {rule}", {"index.json": reference.seal_index(index), **stored})

    def shards(key: str, value: object) -> Callable[[Any], object]:
        return lambda index: index["shards"].update({key: value})

    size, key = len(_SHARD), f"{reference.get(_SHARD, 'row_key') ^ 1:016x}"
    return [
        made("schema", "The index has another name for a column.", "is not the shard that the index names", "schema",
             lambda index: index["columns"][0].update(name="no")),
        made("row-key", "The row key is that of another shard.", "is not the shard that the index names", "row key",
             shards("row_key", key)),
        made("samples", "The index has a sample less.", "samples", "samples",
             lambda index: (index.update(samples=1), index["shards"].update(samples=[1]))),
        made("rows-offset", "The index has the rows 64 bytes later.", "rows", "offset of the rows",
             lambda index: index.update(rows_offset=index["rows_offset"] + 64)),
        made("size", "The index has a byte more.", "size", "size of the shard", shards("size", [size + 1])),
        made("hash", "Another hash.", "hash", "raw hash", shards("xxh3_128", "0" * 32)),
        made("stored-hash", "Another hash of the compressed file.", "hash", "stored hash", shards("xxh3_128", "0" * 32),
             True),
        made("raw-hash", "Another hash of the raw shard.", "hash", "raw hash", shards("raw_xxh3_128", "0" * 32),
             True),
        made("stored-size", "The index has a byte more of the compressed file.", "size", "stored size",
             shards("size", [len(_STORED) + 1]), True),
    ]  # fmt: skip
