"""Remove objects that mdsx has stored, and no others. All removals of objects go through this module.

- A caller makes all checks that may refuse the folder first, and removes afterwards.
- Only keys that mdsx makes are removed (`filenames.is_of_dataset`), or keys that the caller's own record names. All
  keys are checked before the first one is removed. Files of others in a folder of mdsx stay.
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
"""Returns whether mdsx makes such a key."""


def remove(
    storage: Storage,
    *keys: str,
    own: Own = filenames.is_of_dataset,
    seen: Callable[[str], object] = lambda key: None,
) -> None:
    """Remove objects durably, several at once, and call `seen` with each key. If mdsx does not make one of the keys,
    raise UsageError and remove nothing."""
    for key in keys:
        if not own(key):
            raise UsageError("mdsx does not remove files that it did not write", file=file_of(storage, key))

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
    """Remove those of the `entries` whose keys mdsx makes, except the keys in `but`."""
    kept = set(but)
    keys = [entry.key for entry in entries if filenames.is_of_dataset(entry.key) and entry.key not in kept]
    remove(storage, *keys)


def discard(
    storage: Storage,
    *prefixes: str,
    own: Own = filenames.is_of_dataset,
    choose: Callable[[Entry], bool] = lambda entry: True,
) -> None:
    """Remove unfinished objects of dead writers, below `prefixes` or all, whose keys mdsx makes and for which `choose`
    returns True.

    S3 does not know which writers have died. So call it only for a folder that is known to be the caller's.
    """
    for prefix in prefixes or [""]:
        storage.discard_unfinished(prefix, choose=lambda entry: own(entry.key) and choose(entry))
