"""Entries of objects whose keys are known, and which entries of a folder count."""

from __future__ import annotations

import os
from collections.abc import Collection

from mdsx.process import REQUESTS, Share
from mdsx.storage.base import Entry, Storage


def find_entries(storage: Storage, keys: Collection[str]) -> dict[str, Entry]:
    """Return the entries of the objects with these `keys`, and maybe of others, by key; those missing are left out.

    One listing finds them all. A web server has none: there, each is asked for, and a missing one raises MissingError.
    """
    if storage.url.startswith(("http://", "https://")):
        found = list(Share(REQUESTS).map(lambda key: describe(storage, key), sorted(keys)))
    else:
        shared = os.path.commonprefix([min(keys), max(keys)])  # noqa: RUF071  # of the text, and so that of all keys
        found = list(storage.list(shared))
    return {entry.key: entry for entry in found}


def describe(storage: Storage, key: str) -> Entry:
    """Return the entry of an object, without a listing. Raise MissingError."""
    piece = storage.get(key, stop=1)
    return Entry(key, piece.total, piece.etag)


def is_visible(key: str) -> bool:
    """Return whether an object in a folder of data is a part of it, as engines decide.

    Hidden ones are not, and those whose name or folder begins with "_", except for folders of partitioned data such as
    `_year=2024`.
    """
    *folders, name = key.split("/")
    return not name.startswith((".", "_")) and not any(map(_is_hidden, folders))


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") or (folder.startswith("_") and "=" not in folder)
