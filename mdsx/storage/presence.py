"""Whether a storage has an object."""

from __future__ import annotations

from mdsx.errors import MissingError
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
