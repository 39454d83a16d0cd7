"""Removal of what mdsx has stored, and of nothing else. Everything that removes objects goes through this module.

- A caller first makes every check that may refuse the place, and removes afterwards.
- Only keys that mdsx makes are removed (`filenames.is_of_dataset`), or those that a record of the caller's own names.
  All keys are checked before the first one is removed. What others have put into a folder of mdsx stays.
- On a disk, no symbolic link is followed: see `below.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from mdsx.errors import UsageError
from mdsx.format import filenames
from mdsx.storage.base import Entry, Storage, file_of

_THREADS = 16

Own = Callable[[str], bool]
"""Returns whether a key is one that mdsx makes."""


def remove(
    storage: Storage,
    *keys: str,
    own: Own = filenames.is_of_dataset,
    seen: Callable[[str], object] = lambda key: None,
) -> None:
    """Remove objects durably, several at once; call `seen` with each. Raise UsageError, and remove nothing, if there is
    a key that mdsx does not make."""
    for key in keys:
        if not own(key):
            raise UsageError("mdsx does not remove what it did not write", file=file_of(storage, key))

    def delete(key: str) -> str:
        storage.delete(key)
        return key

    if len(keys) < 2:
        for key in keys:
            seen(delete(key))
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="mdsx-remove") as pool:
        for key in pool.map(delete, keys):
            seen(key)


def remove_ours(storage: Storage, entries: Iterable[Entry], *, but: Iterable[str] = ()) -> None:
    """Remove those of the `entries` whose keys mdsx makes, except those to keep."""
    kept = set(but)
    keys = [entry.key for entry in entries if filenames.is_of_dataset(entry.key) and entry.key not in kept]
    remove(storage, *keys)


def discard(
    storage: Storage,
    *prefixes: str,
    own: Own = filenames.is_of_dataset,
    choose: Callable[[Entry], bool] = lambda entry: True,
) -> None:
    """Remove unfinished objects whose writers have died, below `prefixes` or all, if mdsx makes such keys and `choose`
    returns True.

    S3 does not know which writers have died: so call it only where the place is known to be the caller's.
    """
    for prefix in prefixes or [""]:
        storage.discard_unfinished(prefix, choose=lambda entry: own(entry.key) and choose(entry))
