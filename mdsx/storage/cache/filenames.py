"""The names of a cache's files. Only this module makes and parses them.

| file | content |
|---|---|
| `<fingerprint>/<raw hash>.mdsx` | a shard: complete, verified and uncompressed |
| `<fingerprint>/<raw hash>.mdsx.part` | a shard that is being fetched |
| `<fingerprint>/<hash>.u32` | lengths of the dataset's samples, filled in by shard; also with `.part` |
| `<fingerprint>/<hash>.side` | a shard's side object, such as the pointers of a tar; also with `.part` |
| `<place>/<version>.index` | a large index; the hashes of its URL, and of its ETag and size; also with `.part` |
| `<fingerprint>/from.<URL>` | empty: where files of the folder were fetched from, with "/" as %2F |
| `mdsx-cache` | empty: the directory is a cache; made first |
| `lock` | empty: the process that holds its lock may change the directory |
| `tally.<boot>.<bytes>` | empty: the bytes of all files |
| `limits/<bytes>`, `limits/<bytes>.default` | empty, locked by the processes with this limit, given or default |
| `needs/<fingerprint>.<random>` | when a process needs the shards of a dataset next; locked by that process |

Any other file is not the cache's: it does not count, and is never removed. A directory with other files is not made a
cache: see `directory.claim`.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from mdsx.secret import redacted

MARK = "mdsx-cache"
LOCK = "lock"
LIMITS = "limits"
NEEDS = "needs"
SHARDS = "*/*.mdsx"
"""A glob of all shards."""

_SHARD, _LENGTHS, _SIDE, _INDEX = ".mdsx", ".u32", ".side", ".index"
_UNFINISHED, _DEFAULT, _SOURCE = ".part", ".default", "from."
_FOLDER = re.compile(r"[0-9a-f]{32}")
_FILES = re.compile(r"[0-9a-f]{32}\.(mdsx|u32|side|index)(\.part)?")
_URL_END = 100  # characters to keep of each end of a long URL: a file's name may have 255
_TALLY = re.compile(r"tally\.([^.]+)\.([0-9]+)")
_LIMIT = re.compile(r"[0-9]+(\.default)?")
_NEEDS = re.compile(r"([0-9a-f]{32})\.[0-9a-f]{16}")


def shard(raw_hash: str) -> str:
    return f"{raw_hash}{_SHARD}"


def lengths(hash: str) -> str:
    return f"{hash}{_LENGTHS}"


def side_object(hash: str) -> str:
    return f"{hash}{_SIDE}"


def index(version: str) -> str:
    return f"{version}{_INDEX}"


def is_content(name: str) -> bool:
    """Whether a file of this name, in a dataset's folder, is a shard, lengths, a side object or an index, finished or
    not."""
    return _FILES.fullmatch(name) is not None


def is_whole_shard(name: str) -> bool:
    """Whether a file of this name, for which `is_content` is true, is a complete shard."""
    return name.endswith(_SHARD)


def is_folder(name: str) -> bool:
    """Whether a folder of this name is a dataset's."""
    return _FOLDER.fullmatch(name) is not None


def source(url: str) -> str:
    """Return the file name that records a dataset's URL."""
    name = quote(redacted(url), safe=" :*+,=@~", errors="surrogateescape")
    return _SOURCE + (name if len(name) <= 2 * _URL_END else f"{name[:_URL_END]}...{name[-_URL_END:]}")


def url_of(name: str) -> str | None:
    """Return the URL that a name records, shortened in the middle if it is long; None for any other file."""
    return unquote(name.removeprefix(_SOURCE)) if name.startswith(_SOURCE) else None


def raw_hash(path: str) -> str:
    """Return the raw hash in a shard's path; for any other file, a text that is not a hash."""
    return path.rpartition("/")[2].removesuffix(_SHARD)


def unfinished(shard: str) -> str:
    """Return the name of a shard that is being made."""
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


def needs(fingerprint: str, token: str) -> str:
    return f"{fingerprint}.{token}"


def fingerprint_of_needs(name: str) -> str | None:
    """Return the fingerprint in the name of a file of needs; None for any other file."""
    match = _NEEDS.fullmatch(name)
    return None if match is None else match[1]
