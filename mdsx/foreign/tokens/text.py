"""The text of `_mdsx-tokens.json`: the facts about a set of token files that need not be read from the files.

    {"format":"mdsx-tokens","version":1,
     "kind":"megatron","columns":[{"name":"tokens","type":"uint16[*]"},{"name":"mode","type":"int8"}],
     "samples":1000000,
     "files":{"name":["a.bin",...],"size":[...],"etag":[...],"start":[0,...],"ends":"<32 digits each>",
              "lengths":"<32 digits each>","shards":[...],"tables":[...]},
     "loss":null,
     "shards":{"samples":[...],"tokens":[...],"table":"<32 digits each>","hashes":{"tokens":"<32 digits each>"}},
     "tables":{"name":["_mdsx-tokens/<16 digits>-<number>-<16 digits>.table",...],"shards":[...]},
     "checksum":"<16 digits>"}

It is one line, and ends with the checksum (`seal.py`). Files are in the order of the samples, and so are the shards.
The documents of a file are contiguous from its byte `start` on, and so are its shards. Files of 0 bytes are left out.

- `ends`: the XXH3-128 of the first and last 64 KiB of a file (`ends_of`). `lengths`: the XXH3-128 of the lengths and
  modes of its documents, shard by shard, as `<u4` and `i1`.
- `etag`: "" if the storage is a disk. An object that still has this ETag is the one that was indexed. One with another
  ETag may be a copy, so its ends are compared.
- `tables`: objects next to the index with the tables of successive shards, one after the other (see `tables.py`), each
  with its XXH3-128 in `shards.table`. `files.tables` is the number of these objects for each file. A dataset without
  hashes whose documents all have the same number of tokens has none of them.
- `hashes`: empty, or the XXH3-128 of the bytes of each shard, for `tokens` and possibly `loss`. Then the tables also
  have hashes of each document.
- `loss`: null, or for each file the `name`, `size`, `etag` and `ends` of a file with a byte for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mdsx.errors import UsageError
from mdsx.format import MAX_SHARDS, is_file_key, seal_file_index

INDEX_KEY = "_mdsx-tokens.json"
VERSION = 1
KINDS = ("megatron", "datatrove", "tokens")
AGAIN = "run `mdsx index` again"


@dataclass(frozen=True, slots=True)
class IndexedShard:
    """A shard: its documents and tokens, the hash of its table ("" without one), and the hashes of its bytes by
    column."""

    samples: int
    tokens: int
    table: str
    hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexedLoss:
    """The file with the losses of a file: its key, size, ETag, and the hash of its ends."""

    name: str
    size: int
    etag: str
    ends: str


@dataclass(frozen=True, slots=True)
class IndexedTokens:
    """A file of tokens that has documents. `tables`: the key of each object with tables, and the shards in it."""

    name: str
    size: int
    etag: str
    start: int
    ends: str
    lengths: str
    shards: tuple[IndexedShard, ...]
    tables: tuple[tuple[str, int], ...]
    loss: IndexedLoss | None = None


def build_text(
    kind: str, columns: Sequence[tuple[str, str]], files: Sequence[IndexedTokens], hashed: Sequence[str]
) -> bytes:
    """Return the text of an index. `hashed`: the columns whose bytes have hashes. Raise UsageError if there are too
    many shards."""
    shards = [shard for file in files for shard in file.shards]
    tables = [table for file in files for table in file.tables]
    losses = [file.loss for file in files if file.loss is not None]
    if len(shards) > MAX_SHARDS:
        hint = "index fewer files at a time, and mix the datasets"
        raise UsageError("too many shards", found=len(shards), expected=f"at most {MAX_SHARDS} (2^22)", hint=hint)
    members = {
        "format": "mdsx-tokens",
        "version": VERSION,
        "kind": kind,
        "columns": [{"name": name, "type": type} for name, type in columns],
        "samples": sum(shard.samples for shard in shards),
        "files": {
            "name": [file.name for file in files],
            "size": [file.size for file in files],
            "etag": [file.etag for file in files],
            "start": [file.start for file in files],
            "ends": "".join(file.ends for file in files),
            "lengths": "".join(file.lengths for file in files),
            "shards": [len(file.shards) for file in files],
            "tables": [len(file.tables) for file in files],
        },
        "loss": None
        if not losses
        else {
            "name": [loss.name for loss in losses],
            "size": [loss.size for loss in losses],
            "etag": [loss.etag for loss in losses],
            "ends": "".join(loss.ends for loss in losses),
        },
        "shards": {
            "samples": [shard.samples for shard in shards],
            "tokens": [shard.tokens for shard in shards],
            "table": "".join(shard.table for shard in shards),
            "hashes": {name: "".join(shard.hashes[number] for shard in shards) for number, name in enumerate(hashed)},
        },
        "tables": {"name": [name for name, _ in tables], "shards": [count for _, count in tables]},
    }
    return seal_file_index(members)


def is_key(name: str) -> bool:
    """Return whether `name` can be the key of a file in an index: see `is_file_key`. It must not have a scheme."""
    return is_file_key(name) and ":" not in name.split("/")[0]
