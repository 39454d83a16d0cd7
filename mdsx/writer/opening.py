"""Open a finished dataset to write files next to its index: lengths, image sizes, selections."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from mdsx.base.progress import Progress
from mdsx.errors import ChangedError
from mdsx.format import StoredIndex
from mdsx.shards import read_index
from mdsx.storage import Storage, StorageOptions, open_beside, open_storage


def open_dataset(
    url: str | os.PathLike[str],
    index: str | os.PathLike[str] | None,
    options: StorageOptions | None,
    watch: Callable[[Progress], object],
) -> tuple[Storage, Storage, StoredIndex, Callable[[int, int], None]]:
    """Return the dataset's storage, the storage of its index and of new files, the index, and a function to call with
    the numbers of shards and samples read."""
    storage = open_storage(url, options, write=index is None)
    target = storage if index is None else open_beside(url, index, options, write=True)
    found = read_index(target)
    sizes = np.concatenate((np.zeros(1, np.int64), np.cumsum(found.sizes)))

    def show(done: int, samples: int) -> None:
        watch(Progress(samples, int(sizes[done]), int(sizes[-1]), done, len(sizes) - 1))

    return storage, target, found, show


def check_unchanged(target: Storage, index: StoredIndex) -> None:
    """Raise ChangedError if the dataset whose index is in `target` is no longer the one with this `index`: an append
    has extended the files that would be written over."""
    if read_index(target).fingerprint != index.fingerprint:
        raise ChangedError("the dataset changed while it was read", file=target.url, hint="run this again")
