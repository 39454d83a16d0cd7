"""Whether a storage has an object, and storing one only if it is as it was."""

from __future__ import annotations

from mdsx.errors import ChangedError, MissingError, restated
from mdsx.storage.base import Piece, Storage


def get_or_none(storage: Storage, key: str, *, stop: int | None = None) -> Piece | None:
    """Return an object, or its first `stop` bytes; None if it does not exist."""
    try:
        return storage.get(key, stop=stop)
    except MissingError:
        return None


def exists(storage: Storage, key: str) -> bool:
    """Return whether a listing has an object."""
    return any(entry.key == key for entry in storage.list(key))


def put_over(
    storage: Storage, key: str, data: bytes, *, etag: str | None, hint: str | None = None, or_same: bool = False
) -> None:
    """Store an object in place of the one that had this ETag, or a new one if that is None.

    Raise ChangedError, with this `hint`, if another program has stored, replaced or removed the object meanwhile.
    `or_same`: unless the object has these bytes now, as another attempt at the same job stores them.
    """
    try:
        if etag is None:
            storage.create(key, data)
        else:
            storage.replace(key, data, etag=etag)
    except ChangedError as error:
        if or_same and (now := get_or_none(storage, key)) is not None and now.data == data:
            return
        if hint is None:
            raise
        raise restated(error, hint=hint) from None
