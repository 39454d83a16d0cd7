"""Where bytes lie: one small protocol (`Storage`), local disk and S3 behind it, and the bounded cache beside it."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from mdsx.errors import UsageError, shown
from mdsx.storage.base import Entry, Piece, Sink, Storage

__all__ = ["Entry", "Piece", "Sink", "Storage", "open_storage"]


def open_storage(url: str | os.PathLike[str]) -> Storage:
    """The storage below `url`: a path, `file://...` or `s3://bucket/prefix`. Touches nothing yet.

    Raises UsageError for another scheme.
    """
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise UsageError("a URL is a path, file:// or s3://", found=shown(url))
    scheme, separator, _ = text.partition("://")
    if "\0" in text or (scheme == "file" and "%00" in text):
        raise UsageError("a URL has no zero bytes", found=shown(text))
    if separator and text.encode(errors="ignore").decode() != text:
        raise UsageError("a URL is UTF-8", found=shown(text))
    if not separator:
        from mdsx.storage.local import LocalStorage

        return LocalStorage(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:  # brackets that hold no IPv6 address
        raise UsageError(f"this is no URL: {error}", found=shown(text)) from None
    if scheme == "file":
        from mdsx.storage.local import LocalStorage

        if parts.netloc not in ("", "localhost"):
            raise UsageError("file:// leads to another machine", found=text, hint="write file:///path")
        return LocalStorage(unquote(parts.path))
    if scheme == "s3":
        from mdsx.storage.s3 import S3Storage

        return S3Storage(text)
    raise UsageError(f"there is no storage for {scheme[:30]}://", expected="a path, file:// or s3://")
