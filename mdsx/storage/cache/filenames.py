"""The names of a cache's files. Only this module makes and parses them.

| file | content |
|---|---|
| `<fingerprint>/<raw hash>.mdsx` | a shard: whole, verified and uncompressed |
| `<fingerprint>/<raw hash>.mdsx.part` | a shard that is being fetched |
| `lock` | empty: the process that holds its lock may change the directory |
| `tally.<boot>.<bytes>` | empty: the bytes of all files |
| `limits/<bytes>`, `limits/<bytes>.default` | empty, locked by the processes with this limit, given or default |
"""

from __future__ import annotations

import re

LOCK = "lock"
LIMITS = "limits"
SHARDS = "*/*.mdsx"
"""A glob of all shards."""

_SHARD, _UNFINISHED, _DEFAULT = ".mdsx", ".part", ".default"
_TALLY = re.compile(r"tally\.([^.]+)\.([0-9]+)")
_LIMIT = re.compile(r"[0-9]+(\.default)?")


def shard(raw_hash: str) -> str:
    return f"{raw_hash}{_SHARD}"


def raw_hash(path: str) -> str:
    """Return the raw hash in the path of a shard; for any other file, a text that is no hash."""
    return path.rpartition("/")[2].removesuffix(_SHARD)


def unfinished(shard: str) -> str:
    """Return the name under which a shard is made."""
    return shard + _UNFINISHED


def is_unfinished(path: str) -> bool:
    return path.endswith(_UNFINISHED)


def tally(boot: str, total: int) -> str:
    return f"tally.{boot}.{total}"


def parse_tally(name: str) -> tuple[str, int] | None:
    """Return the boot and the bytes that a tally's name gives; None for any other file."""
    match = _TALLY.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def limit(size: int, *, default: bool) -> str:
    return f"{size}{_DEFAULT if default else ''}"


def limit_of(name: str) -> int | None:
    """Return the bytes of a limit; None for any other file."""
    return int(name.removesuffix(_DEFAULT)) if _LIMIT.fullmatch(name) else None


def is_default(name: str) -> bool:
    return name.endswith(_DEFAULT)
