"""Where bytes are stored: one small protocol (`Storage`), implemented by local disk and S3; and the bounded cache."""

from __future__ import annotations

import math
import os
import re
from pathlib import PurePath
from urllib.parse import unquote

from mdsx.errors import UsageError, shown
from mdsx.storage.base import Entry, Piece, Storage, file_of
from mdsx.storage.local import LocalStorage, map_whole
from mdsx.storage.retry import answered, believe

__all__ = ["Entry", "Piece", "Storage", "answered", "believe", "file_of", "map_whole", "open_storage"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ONE_SLASH = re.compile(r"(file|s3|gs|az|hf|https?):/(?!/)", re.IGNORECASE)


def open_storage(url: str | os.PathLike[str], *, connect_timeout: float | None = None) -> Storage:
    """Return the storage below `url`: a path, `file://...` or `s3://bucket/prefix`. Access nothing yet.

    `connect_timeout`: seconds for which to retry a first contact that fails in a way that a retry rarely cures (see
    `S3Storage`); None for half a second. A disk ignores it. Raise UsageError for another scheme.
    """
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise UsageError("a URL is a path, file:// or s3://", found=shown(url))
    _check_timeout(connect_timeout)
    scheme, separator, rest = text.partition("://")
    if "\0" in text or (scheme == "file" and "%00" in text):
        raise UsageError("a URL may not have zero bytes", found=shown(text))
    if separator and text.encode(errors="ignore").decode() != text:
        raise UsageError("a URL must be UTF-8", found=shown(text))
    if separator and (found := _CONTROL.search(text)):
        raise UsageError(f"a URL may not have control characters, but this has {found[0]!r}", found=shown(text))
    if _ONE_SLASH.match(text):
        what = (
            "a Path drops one of two slashes: give the URL as a str"
            if isinstance(url, PurePath)
            else "write two slashes"
        )
        raise UsageError("a URL has two slashes after the colon", found=shown(text), hint=what)
    if not separator:
        return LocalStorage(expanded(text))
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise UsageError("file:// names another machine", found=text, hint="write file:///path")
        if not slash:
            raise UsageError("file:// has no path", found=text, hint="write file:///path")
        return LocalStorage("/" + unquote(path))  # "?" and "#" are part of the name
    if scheme == "s3":
        from mdsx.storage.s3 import S3Storage

        return S3Storage(text, connect_timeout)
    raise UsageError(f"there is no storage for {scheme[:30]}://", expected="a path, file:// or s3://")


def expanded(path: str) -> str:
    """Return `path` with the home directory in place of a "~" at its start, as in a shell."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        user = expanded.partition("/")[0]
        raise UsageError(f"{user} is not a user's home directory", file=path, hint=f"./{user} is a folder of that name")
    return expanded


def _check_timeout(seconds: object) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise UsageError("connect_timeout must be a number of seconds, at least 0", found=shown(seconds))
