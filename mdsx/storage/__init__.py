"""Storage of bytes: one small protocol (`Storage`), which disks and clouds implement, and the bounded cache."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import PurePath
from urllib.parse import unquote

from mdsx.base.plugins import Plugin, find
from mdsx.errors import MdsxError, UsageError, shown
from mdsx.storage.base import (
    Entry,
    MissingBucketError,
    Piece,
    Room,
    Storage,
    check_key,
    describe,
    file_of,
    find_entries,
    is_visible,
)
from mdsx.storage.local import LocalStorage, absolute, map_range, map_whole
from mdsx.storage.options import BaseOptions, StorageOptions, parsed, sealed, unsealed
from mdsx.storage.presence import exists, get_or_none, put_over
from mdsx.storage.removal import discard, remove, remove_ours
from mdsx.storage.retry import answered, believe

__all__ = [
    "SCHEMES",
    "Entry",
    "MissingBucketError",
    "Piece",
    "Room",
    "Storage",
    "StorageOptions",
    "absolute",
    "answered",
    "believe",
    "check_key",
    "describe",
    "discard",
    "exists",
    "file_of",
    "find_entries",
    "get_or_none",
    "is_visible",
    "map_range",
    "map_whole",
    "open_beside",
    "open_storage",
    "put_over",
    "remove",
    "remove_ours",
    "sealed",
]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_ONE_SLASH = re.compile(r"(\w+):/(?!/)")


_PAGES = re.compile(
    r"(?P<aws>(?:[\w-]+\.)*console\.aws\.amazon\.com)|(?P<google>console\.cloud\.google\.com)"
    r"|(?P<azure>portal\.azure\.com)|(?P<hub>huggingface\.co/datasets/(?![^?#]*/resolve/))"
    r"|(?P<bucket>huggingface\.co/buckets/(?![^?#]*/resolve/))"
)
_PAGE_HINTS = {
    "aws": "write s3://bucket/prefix",
    "google": "write gs://bucket/prefix",
    "azure": "write az://container@ACCOUNT.blob.core.windows.net/prefix",
    "hub": "write hf://datasets/owner/name",
    "bucket": "write hf://buckets/owner/name",
}


def open_storage(url: str | os.PathLike[str], options: StorageOptions | None = None, *, write: bool = False) -> Storage:
    """Return the storage below `url`: a path, or a URL with a scheme in `SCHEMES` or of another package. Nothing is
    accessed yet.

    `options`: options of the storage, by name (docs/clouds.md). Raise UsageError for an unknown scheme or option, and
    for a read-only storage with `write`.
    """
    several = isinstance(url, list | tuple)
    if several or not isinstance(url, str | bytes | os.PathLike):
        hint = "to read several datasets as one, use mdsx.Mixture([...])" if several else None
        raise UsageError("not a URL", found=shown(url), expected=_KNOWN, hint=hint)
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise UsageError("not a URL", found=shown(url), expected=_KNOWN)
    scheme, separator, rest = text.partition("://")
    if "\0" in text or (scheme == "file" and "%00" in text):
        raise UsageError("a URL may not have zero bytes", found=shown(text))
    if separator and text.encode(errors="ignore").decode() != text:
        raise UsageError("a URL must be UTF-8", found=shown(text))
    if separator and (found := _CONTROL.search(text)):
        raise UsageError(f"a URL may not have control characters such as {found[0]!r}", found=shown(text))
    if (one := _ONE_SLASH.match(text)) and one[1].lower() in ("file", *SCHEMES):
        what = (
            "a Path drops one of the two slashes: give the URL as a str"
            if isinstance(url, PurePath)
            else "write two slashes"
        )
        found_without = text.rpartition("@")[2].partition("?")[0]  # it may have a password, or be signed
        raise UsageError("a URL needs two slashes after the colon", found=shown(found_without), hint=what)
    if not separator:
        parsed(BaseOptions, options, text)
        return LocalStorage(expanded(text))
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise UsageError("the file:// URL names another machine", found=text, hint="write file:///path")
        if not slash:
            raise UsageError("the file:// URL has no path", found=text, hint="write file:///path")
        parsed(BaseOptions, options, text)
        return LocalStorage("/" + unquote(path))  # "?" and "#" are part of the name
    if scheme in ("http", "https") and (page := _PAGES.match(rest)):
        hint = next(hint for name, hint in _PAGE_HINTS.items() if page[name])
        raise UsageError("this is a web page, not a storage", found=shown(text.partition("?")[0]), hint=hint)
    if scheme not in SCHEMES:
        if (plugin := find("mdsx.storages", scheme) if _SCHEME.fullmatch(scheme) else None) is not None:
            return _for(_made(plugin, text, options), write)
        near = scheme.strip().lower()
        near = _ALIASES.get(near, near)
        way_out = f"write {near}://" + ", without spaces before it" * (scheme != scheme.strip())
        raise UsageError(
            f"there is no storage for {scheme[:30]}://",
            expected=_KNOWN,
            hint=way_out if near in ("file", *SCHEMES) else None,
        )
    module, name = SCHEMES[scheme]
    storage: Storage = getattr(import_module(f"mdsx.storage.remote.{module}"), name)(text, options)
    return _for(storage, write)


def _for(storage: Storage, write: bool) -> Storage:
    """Return the storage. Raise UsageError if it is read-only, with `write`."""
    if write and (instead := getattr(storage, "instead", None)):
        raise UsageError("this storage is read-only", file=storage.url, hint=instead)
    return storage


def _made(plugin: Plugin, url: str, options: StorageOptions | None) -> Storage:
    """Return the storage of another package. Raise UsageError that names the package if that fails."""
    try:
        storage: Storage = plugin.value(url, unsealed(options))
    except MdsxError:
        raise
    except Exception as error:
        message = f"the storage of the package {plugin.distribution} failed: {type(error).__name__}: {error}"
        scheme = url.partition("://")[0]
        raise UsageError(message, place=f"{scheme}://", hint=f"upgrade or uninstall {plugin.distribution}") from error
    return storage


def open_beside(
    url: str | os.PathLike[str], other: str | os.PathLike[str], options: StorageOptions | None, *, write: bool = False
) -> Storage:
    """Return the storage below `other`, with the `options` of `url` if both have the same scheme."""
    if not isinstance(other, str | os.PathLike):
        return open_storage(other, write=write)  # raises UsageError
    schemes = [os.fspath(each).partition("://")[:2] for each in (url, other)]
    same = schemes[0][1] == schemes[1][1] and (not schemes[0][1] or schemes[0][0] == schemes[1][0])
    return open_storage(other, options if same else None, write=write)


SCHEMES = {
    "s3": ("s3", "S3Storage"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), ("az", "AzStorage")),
    "gs": ("gs", "GsStorage"),
    "hf": ("hub", "HubStorage"),
    "http": ("web", "WebStorage"),
    "https": ("web", "WebStorage"),
}
"""The module and class of each scheme's storage, imported on first use. Add a new cloud here."""

_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abs": "az", "wasb": "az", "wasbs": "az", "huggingface": "hf"}
"""Other libraries' names of these schemes."""

_KNOWN = "a path, file://, " + ", ".join(f"{scheme}://" for scheme in SCHEMES)


def expanded(path: str) -> str:
    """Return `path` with the home directory in place of a "~" at its start, as in a shell."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        user = expanded.partition("/")[0]
        raise UsageError(f"{user} is not a user's home directory", file=path, hint=f"for a folder, write ./{user}")
    return expanded
