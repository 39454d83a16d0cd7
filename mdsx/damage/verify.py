"""Verifies a whole dataset, local or remote: every byte of every shard against every checksum and rule.

Shards are downloaded, decompressed and checked in memory, at most `threads` of them at once. Damage in a shard is
reported by sample and column, damage to a compressed frame by the samples in it. If no check locates it, it is reported
by the hash of the whole. A shard that is missing or cannot be read is damage as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from mdsx.damage.examine import find_damage, in_order
from mdsx.damage.report import Verification
from mdsx.errors import CorruptError, MdsxError, MissingError
from mdsx.format import StoredIndex
from mdsx.progress import Progress
from mdsx.shards import read_index
from mdsx.storage import Storage, file_of, open_storage


def verify(
    url: str | os.PathLike[str],
    *,
    threads: int = 4,
    connect_timeout: float | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> Verification:
    """Check every byte of the dataset at `url`, and return a report of its damages, in the order of the shards.

        found = mdsx.verify("s3://bucket/corpus")
        assert found.ok, list(found)

    Args:
        url: A finished dataset. If its index is damaged, that is the only damage found.
        threads: How many shards to check at once; each is held in memory.
        connect_timeout: Seconds to retry a first contact that fails, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` after each shard.

    Raises:
        MissingError: There is no dataset.
        TransportError: Storage failed.
    """
    storage = open_storage(url, connect_timeout=connect_timeout)
    try:
        index = read_index(storage)
    except CorruptError as error:
        watch(Progress(0, 0, 0, problems=(error,)))
        return Verification(storage.url, 0, 0, 0, (error,))
    firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(index.counts)))
    of_shards, of_size, size = len(index.counts), sum(index.sizes.tolist()), 0
    damages: list[MdsxError] = []

    def examined(shard: int) -> Sequence[MdsxError]:
        return _damages(storage, index, shard, int(firsts[shard]))

    for shard, found in enumerate(in_order(examined, range(of_shards), threads)):
        damages += found
        size += int(index.sizes[shard])
        watch(Progress(int(firsts[shard + 1]), size, of_size, shard + 1, of_shards, tuple(found)))
    return Verification(storage.url, index.samples, of_shards, size, tuple(damages))


def _damages(storage: Storage, index: StoredIndex, shard: int, first: int) -> Sequence[MdsxError]:
    try:
        return find_damage(storage, index, shard, first=first)
    except MissingError:
        last = first + int(index.counts[shard]) - 1
        message = f"the shard is not there; it held samples {first}-{last} of the dataset"
        return [MissingError(message, file=file_of(storage, index.name(shard)))]
    except MdsxError as error:
        return [error]
