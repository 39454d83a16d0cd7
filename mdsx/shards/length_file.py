"""The file of a dataset's lengths: read its trailer and the lengths of some shards, and write it.

A file that is damaged, or that belongs to another dataset or to an earlier state of this one, is ignored with a
warning. The lengths are then read from the rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Counter, Share, count, in_flight
from mdsx.base.warn import warn
from mdsx.errors import CorruptError, ForbiddenError, FormatError, MdsxError, MissingError, TruncatedError
from mdsx.format import SIDES, STORED_LENGTH, LengthIdentity, LengthTrailer, filenames
from mdsx.shards.objects import retried
from mdsx.storage import Storage, discard, file_of

_GAP = 2**14  # lengths: reading across a gap of this size costs less than another request
_MOST = 2**21  # lengths in a request
_AT_ONCE = 32  # requests

ShardLengths = tuple[int, NDArray[np.uint32]]
"""The number of a shard, and its lengths."""


class LengthFile:
    """A file of lengths whose trailer fits the dataset. `firsts` (int64 [S + 1]): number of each shard's first
    sample."""

    def __init__(
        self,
        storage: Storage,
        key: str,
        identity: LengthIdentity,
        counts: NDArray[np.int64],
        trailer: LengthTrailer,
        etag: str,
    ) -> None:
        self._storage, self.key, self._identity, self.trailer, self.etag = storage, key, identity, trailer, etag
        self._firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        self.shards = len(counts)

    @classmethod
    def open(
        cls,
        storage: Storage,
        identity: LengthIdentity,
        counts: NDArray[np.int64],
        *,
        folder: str = "",
        warns: bool = True,
    ) -> LengthFile | None:
        """Open the file next to the index in `folder`, in one request. Return None if it does not exist, or does not
        fit the dataset; the latter with a warning if `warns`."""
        key = filenames.within(folder, identity.key)
        file, start = file_of(storage, key), STORED_LENGTH.itemsize * int(counts.sum())
        stop = start + LengthTrailer.most_bytes(len(counts))  # the file of a later state has more lengths here

        def read() -> tuple[LengthTrailer, str]:
            with in_flight():
                piece = storage.get(key, start=start, stop=stop)
            count(Counter.DOWNLOADED, len(piece.data))
            trailer = LengthTrailer.parse(piece.data, file=file)
            trailer.check(identity, counts, file=file)
            return trailer, piece.etag

        try:
            return cls(storage, key, identity, counts, *retried(read, FormatError))
        except (MissingError, ForbiddenError):  # final: no sample depends on the file, and some storages
            return None  # return 403 for missing objects
        except (FormatError, TruncatedError) as error:
            if warns:
                _warn(storage, identity, error)
            return None

    def read(self, shards: Sequence[int]) -> Iterator[list[ShardLengths]]:
        """Yield the lengths of `shards`, in ascending order, some at a time. Damaged ones are missing."""
        runs, pool = self._runs(shards), Share(REQUESTS)
        for start in range(0, len(runs), _AT_ONCE):
            yield from pool.map(self._read, runs[start : start + _AT_ONCE])

    def _runs(self, shards: Sequence[int]) -> list[list[int]]:
        """Group the shards into requests."""
        runs: list[list[int]] = [[*shards[:1]]] if shards else []
        for before, shard in pairwise(shards):
            gap = self._firsts[shard] - self._firsts[before + 1]
            if gap > _GAP or self._firsts[shard + 1] - self._firsts[runs[-1][0]] > _MOST:
                runs.append([])
            runs[-1].append(shard)
        return runs

    def _read(self, shards: Sequence[int]) -> list[ShardLengths]:
        found, error = self._get(shards)
        if error is not None:  # the damage may have happened in transfer
            found, error = self._get(shards)
        if error is not None:
            _warn(self._storage, self._identity, error)
        return found

    def _get(self, shards: Sequence[int]) -> tuple[list[ShardLengths], MdsxError | None]:
        """Return the undamaged lengths of shards, and an error if any are damaged."""
        first, stop = int(self._firsts[shards[0]]), int(self._firsts[shards[-1] + 1])
        size, file = STORED_LENGTH.itemsize, file_of(self._storage, self.key)
        try:
            with in_flight():
                data = self._storage.get(self.key, start=size * first, stop=size * stop).data
        except (ForbiddenError, MissingError, TruncatedError) as error:  # the file was removed or replaced
            return [], error
        count(Counter.DOWNLOADED, len(data))
        if len(data) != size * (stop - first):
            return [], CorruptError("the file is too short", file=file)
        found, wrong = [], None
        for shard in shards:
            start, end = (self._firsts[shard : shard + 2] - first).tolist()
            lengths = np.frombuffer(data, STORED_LENGTH, end - start, size * start)
            if self._identity.hash(shard, lengths) == int(self.trailer.hashes[shard]):
                found.append((shard, lengths))
            else:
                wrong = CorruptError("the lengths are damaged", file=file, place=f"shard {shard}")
        return found, wrong


def put_length_file(
    storage: Storage, identity: LengthIdentity, parts: Sequence[NDArray[np.uint32]], *, etag: str | None = None
) -> LengthTrailer:
    """Write the lengths of all shards, in order. Return the trailer.

    With `etag`, replace the file that has this ETag. Raise ChangedError if the file has changed or was removed.
    """
    key, trailer = identity.key, LengthTrailer.of(identity, parts)
    data = b"".join((*(part.data for part in parts), trailer.text()))
    discard(storage, key)
    if etag is None:
        storage.put(key, data)
    else:
        storage.replace(key, data, etag=etag)
    return trailer


def writing_command(storage: Storage, identity: LengthIdentity) -> str:
    """Return the command that writes the file."""
    command = "sizes" if identity.rule in SIDES else "lengths"
    return shlex.join(["mdsx", command, storage.url, "--column", identity.column])


def _warn(storage: Storage, identity: LengthIdentity, error: MdsxError) -> None:
    instead = "" if identity.rule in SIDES else "; the lengths are read from the samples' rows instead"
    warn(f"{error}{instead}; rewrite them: {writing_command(storage, identity)}")
