"""The shards of one dataset: mapped in place, mapped from the cache, or read by range from storage.

Rules:
- A shard in place (local, uncompressed) is mapped where it is, and never copied or deleted. On a network file system,
  or with `mmap=False`, its ranges are read by `pread` instead, because an I/O error in a mapped file kills the process.
- Any other shard is mapped from the cache once it is complete there. Until then its samples are read by range.
- Every returned sample is verified: by itself, or with the whole shard, during its download or when it is opened
  (`whole=True`). The check of a whole shard holds while the file's `Identity` is the one from before the check, or from
  after the download. It is compared for each run of batches and each read of a large sample. The check of a shard in
  place also holds in forked processes: the process with these `Shards` shares its record of checks with all its
  descendants. A damaged file of the cache is dropped and fetched again. A damaged shard in place is an error that names
  the sample if possible. With `Cache(verify="size")`, cached files are trusted.
- An error that a prefetch finds in a whole shard is never dropped: the next read of the shard raises it.
- `_ProcessState` holds everything that must not cross a fork or a pickle. Each process creates its own.
"""

from __future__ import annotations

import mmap
import os
import re
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Counter, at_fork, count, keep_freed_memory
from mdsx.base.system import network_file_system, shared_numbers
from mdsx.errors import ChangedError, CorruptError, FormatError, MdsxError, UsageError, restated
from mdsx.format import (
    Decoder,
    OpenedShard,
    ProjectsColumns,
    ReadsExtents,
    ReadsParts,
    Schema,
    Selection,
    StoredIndex,
    filenames,
    sample_name,
)
from mdsx.shards.formats import cache_folder, read_index
from mdsx.shards.objects import retried
from mdsx.shards.opened import Identity, Opened, OpenShards, make_room, map_in_place
from mdsx.shards.side_objects import SideObjects
from mdsx.shards.stored import StoredShards
from mdsx.storage import Storage, StorageOptions, file_of, map_range, open_beside, open_storage
from mdsx.storage.cache import Cache, CacheDirectory, CacheKey, Needs, Verdict, Write

_DEFAULT_CACHE = Cache()
_UNKNOWN: Needs = MappingProxyType({})


class _ProcessState:
    """The state of one process."""

    def __init__(self, storage: Storage, index: StoredIndex, side_objects: SideObjects, *, leased: bool) -> None:
        self.opened = OpenShards(leased)
        self.side_objects = side_objects
        self.stored = StoredShards(storage, index, side_objects.index)
        self.wrong: dict[int, MdsxError] = {}  # errors that a prefetch found in shards
        self.brought: dict[int, Identity] = {}  # shards downloaded, and so checked, and not opened since
        keep_freed_memory()


class Shards:
    """Opens `url` and serves selections of its shards. Threads may share it; processes may inherit or unpickle it."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        cache: Cache = _DEFAULT_CACHE,
        mmap: bool = True,
        connections: int = 0,
        storage_options: StorageOptions | None = None,
        index: str | os.PathLike[str] | None = None,
        snapshot: str | None = None,
    ) -> None:
        """`connections`: how many to open while the index is fetched, if the cache is empty. `index`: the folder with
        the index, if it is not the shards' folder. `snapshot`: a fingerprint that the dataset has or had."""
        storage = open_storage(url, storage_options)
        opened: CacheDirectory | None = None
        if storage.path(filenames.INDEX) is None:
            opened = cache.open()
            if connections and index is None and opened.is_empty():
                storage.connect(filenames.INDEX, connections)
        beside = storage if index is None else open_beside(url, index, storage_options)
        found = read_index(beside, snapshot, cache=opened)
        if opened is None and found.compression is not None:
            opened = cache.open()
        self._begin(storage, beside, found, opened, given=cache, mmap=mmap, is_snapshot=snapshot is not None)

    @classmethod
    def of(cls, storage: Storage, beside: Storage, index: StoredIndex) -> Shards:
        """Return the shards in `storage` that `index` names, without a cache. `beside`: the storage of the index."""
        made = cls.__new__(cls)
        made._begin(storage, beside, index, None, given=_DEFAULT_CACHE, mmap=True, is_snapshot=True)
        return made

    def _begin(
        self,
        storage: Storage,
        beside: Storage,
        index: StoredIndex,
        cache: CacheDirectory | None,
        *,
        given: Cache,
        mmap: bool,
        is_snapshot: bool,
    ) -> None:
        self._given_cache, self.cache = given, cache
        self.storage, self.beside, self.index = storage, beside, index
        path = storage.path(filenames.INDEX)
        self._exact_sizes = not isinstance(self.index, ReadsParts)
        self.is_pinned = self.is_snapshot = is_snapshot
        self.cache_folder = cache_folder(self.index)
        self.maps_beside = mmap and not _on_network(self.beside)
        self._may_map = (
            path is not None and mmap and self.index.compression is None and not network_file_system(path.parent)
        )
        self.mapped_in_place = self._may_map and not _in_several(self.index)
        self._state_or_none: _ProcessState | None = None
        self._verified = shared_numbers(len(self.index.counts))  # the stamp of each shard in place that was verified

    @property
    def has_default_cache(self) -> bool:
        """Whether the caller gave no cache when these were opened."""
        return self._given_cache == _DEFAULT_CACHE

    @property
    def _extents(self) -> ReadsExtents | None:
        return self.index if isinstance(self.index, ReadsExtents) else None

    @property
    def _trust_cache(self) -> bool:
        return self._given_cache.verify == "size"

    def with_cache(self, cache: Cache) -> Shards:
        """Return the shards read through `cache`, unless they are read in place. A cache that is given overrides the
        default.

        Raises:
            UsageError: Another cache was given when these were opened.
        """
        if cache == _DEFAULT_CACHE or cache.same_as(self._given_cache):
            return self
        if not self.has_default_cache:
            raise UsageError(
                "two different caches are given for one dataset",
                file=self.storage.url,
                found=repr(cache),
                expected=f"{self._given_cache!r}, with which it was opened",
                hint="give cache= in one place",
            )
        return self._with(_given_cache=cache, cache=None if self.cache is None else cache.open())

    def at_snapshot(self, fingerprint: str) -> Shards:
        """Return the shards of the dataset's state with this fingerprint. Raise MissingError if it never had it."""
        index = read_index(self.beside, fingerprint, cache=self.cache)
        return self._with(index=index, is_snapshot=True, cache_folder=cache_folder(index))

    def project(self, columns: Sequence[int]) -> tuple[Shards, tuple[int, ...]]:
        """Return the shards with only these columns, and the columns' numbers there. Formats that store columns
        separately then fetch no others."""
        if not isinstance(self.index, ProjectsColumns):
            return self, tuple(columns)
        other = self._with(index=self.index.project(columns))
        other.mapped_in_place = self._may_map and not _in_several(other.index)  # fewer columns may be in one object
        return other, tuple(range(len(columns)))

    def check_cache(self) -> None:
        """Raise UsageError if the cache's given limit is less than the largest shard."""
        if self.cache is not None:
            self.cache.check(int(self.index.raw_sizes.max(initial=0)), self.storage.url)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state_or_none": None, "_verified": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._verified = shared_numbers(len(self.index.counts))

    def _with(self, **changed: Any) -> Shards:
        """Return a copy with some attributes changed."""
        other = Shards.__new__(Shards)
        other.__setstate__({**self.__getstate__(), **changed})
        return other

    @property
    def _state(self) -> _ProcessState:
        state = self._state_or_none
        if state is None:
            side_objects = SideObjects(self.beside, self.index, self.cache, mapped=self.maps_beside)
            leased = not self.mapped_in_place
            state = self._state_or_none = _ProcessState(self.storage, self.index, side_objects, leased=leased)
            _in_use.add(self)
        return state

    @property
    def schema(self) -> Schema:
        return self.index.schema

    def file(self, shard: int) -> str:
        """The shard's full name, for messages."""
        return file_of(self.storage, self.index.name(shard))

    def key(self, shard: int) -> CacheKey:
        index = self.index
        raw_hash = bytes(index.raw_hashes[shard]).hex()
        return CacheKey(self.cache_folder, raw_hash, int(index.raw_sizes[shard]), self._exact_sizes)

    # --- whole shards

    def is_open(self, shard: int) -> bool:
        return shard in self._state.opened

    def open(self, shard: int, *, whole: bool) -> bool:
        """Map the shard, in place or from the cache. Return whether that was possible. `whole`: verify the whole
        shard."""
        opened = self._state.opened.get(shard)
        if opened is not None and opened.unchanged():
            opened.used = True
            if whole and not opened.verified:
                try:
                    self._verify(shard, opened)
                except CorruptError:
                    if self.cache is None:
                        raise
                    self._discard(self.cache, shard)
                    return False
            return True
        if opened is not None:
            self.close(shard)
        if not make_room(leased=not self.mapped_in_place):
            return False
        if self.mapped_in_place:
            identity, in_place = self._identity(shard), self._map(shard)
            checked = self._verified[shard] == identity.stamp and identity.holds()  # of the mapped file
            self._keep(shard, identity, in_place, whole=whole, verified=checked)
            return True
        if self.cache is None:
            return False
        identity, mapped = self._identity(shard), self.cache.open(self.key(shard))
        if mapped is None:
            return False
        checked = self._identity(shard) == self._state.brought.get(shard)  # of the mapped file
        if not self._keep_cached(self.cache, shard, identity, mapped, whole=whole, verified=checked):
            return False
        self._count_opened(shard)
        return True

    def fetch(self, shard: int, *, needs: Needs = _UNKNOWN) -> Verdict | None:
        """Fetch a shard into the cache and map it. Return None on success, else the reason."""
        assert self.cache is not None
        if self.open(shard, whole=True):
            return None
        result, made = self._fetch(self.cache, shard, 0.0, needs)
        if isinstance(result, Verdict):
            return result
        if not make_room(leased=True):  # it is in the cache, and `select` reads it
            return None
        if not self._keep_cached(self.cache, shard, self._identity(shard), result, whole=True, verified=made):
            return Verdict.BUSY
        self._count_opened(shard)
        return None

    def bring(self, shard: int, *, needed_in: float, needs: Needs, received: Callable[[int], None]) -> Verdict | None:
        """Prefetch a shard into the cache without keeping it open. `received` is called with numbers of received bytes.

        If the shard is damaged or was replaced, the next read of it raises the same error.
        """
        assert self.cache is not None
        wrong = self._state.wrong
        try:
            result, _ = self._fetch(self.cache, shard, needed_in, needs, received)
            if not isinstance(result, Verdict):
                self._state.side_objects.bring(shard, needed_in=needed_in, needs=needs)
        except (FormatError, ChangedError) as error:
            wrong[shard] = error
            raise
        wrong.pop(shard, None)
        return result if isinstance(result, Verdict) else None

    def is_being_made(self, shard: int) -> bool:
        """Whether this or another process is fetching the shard into the cache now."""
        return self.cache is not None and self.cache.is_being_made(self.key(shard))

    def touch(self, shard: int, needed_in: float) -> None:
        """Report to the cache, if any, in how many seconds a shard is needed again."""
        if self.cache is not None:
            self.cache.touch(self.key(shard), needed_in)
            self._state.side_objects.touch(shard, needed_in)

    def close(self, shard: int) -> None:
        """Close a mapped shard. Its lease ends with the last view of it."""
        state = self._state
        state.opened.pop(shard)
        state.stored.forget(shard)

    def release(self, *, beyond: int = 0) -> bool:
        """Close shards of the cache, least recently used first, until at most `beyond` bytes, or one shard, are open.
        Return whether any was closed. Other jobs may then evict them."""
        opened, closed = self._state.opened, False
        while opened.leased and opened.size > beyond and len(opened) > 1 and opened.pop_oldest():
            closed = True
        return closed

    # --- samples

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """Select `samples` (int64 [n]) of a shard: from its mapping if it is open; as copies from the cache if this
        process may hold no more leases; else from storage."""
        opened = self._state.opened.get(shard)
        if opened is None:
            if (error := self._state.wrong.pop(shard, None)) is not None:
                raise error
            copied = self._copied(shard, samples)
            return self.select_stored(shard, samples) if copied is None else copied
        opened.used = True
        try:
            self._count(shard, opened, len(samples))
            return opened.view.select(samples, verify=not opened.verified)
        except CorruptError as error:
            if self.cache is None:
                raise self._numbered(shard, error) from None
            self._discard(self.cache, shard)
            return self.select_stored(shard, samples)

    def decode(self, shard: int, sample: int, decoder: Decoder) -> dict[str, Any] | None:
        """Decode one sample of an open shard. Return None if it is not open, or was found damaged in the cache."""
        state = self._state_or_none
        opened = None if state is None else state.opened.get(shard)
        if opened is None:
            return None
        opened.used = True
        try:
            if opened.cheap:
                opened.checked += 1
                return decoder.decode(opened.view, sample, verify=True)
            if not opened.verified:
                self._count(shard, opened, 1)
            if opened.verified and not opened.unchanged():
                self.close(shard)
                return None
            return decoder.decode(opened.view, sample, verify=not opened.verified)
        except CorruptError as error:
            if self.cache is None:
                raise self._numbered(shard, error) from None
            return None

    def select_stored(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """Select `samples` of a shard that is not open, from storage. A shard that must be read whole goes through the
        cache, if that has room."""
        try:
            if self.cache is not None and self.requires_full_download(shard) and self.fetch(shard) is None:
                opened = self._state.opened.get(shard)
                if opened is not None:
                    return opened.view.select(samples, verify=not opened.verified)
                if (copied := self._copied(shard, samples)) is not None:
                    return copied
            return self._state.stored.select(shard, samples)
        except CorruptError as error:
            raise self._numbered(shard, error) from error.__cause__

    def select_undamaged(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        """Select each of `samples` separately, from storage, or return its error. Raise an error of the whole shard:
        its header is damaged or another shard's, or storage fails."""
        found = self._state.stored.select_each(shard, samples)
        return [self._numbered(shard, each) if isinstance(each, CorruptError) else each for each in found]

    def lengths(self, shard: int, column: int) -> NDArray[np.int64]:
        """Return the length of each sample of a shard, int64 [n], by the column with this number: from the shard in
        place or in the cache, else from storage. Raise CorruptError."""
        if self.mapped_in_place and self._extents is not None:
            self._state.stored.confirm(shard)  # needed, as no values are read
        elif self.mapped_in_place:
            return self._parse(shard, self._map(shard)).lengths(column)
        if self.cache is not None and (cached := self.cache.open(self.key(shard))) is not None:
            try:
                view = self._parse(shard, cached)
                counts = self.schema.columns[column].type.fixed_size  # which reading the sample would not compare
                if not self._trust_cache and (counts or not view.checks_samples):  # wrong lengths would stay
                    self.index.verify(shard, view, file=self.file(shard))
                return view.lengths(column)
            except CorruptError:
                self._discard(self.cache, shard)
        return self._state.stored.lengths(shard, column)

    def rows(self, shard: int) -> Selection | None:
        """Select all samples of a shard for only their fixed-size values, from storage. Return None if that would read
        as much as the whole shard. Samples are not checked, because that needs their other values."""
        return self._state.stored.rows(shard)

    def select_whole(self, shard: int) -> Selection:
        """Select all samples of a shard, which is checked as a whole: in place, in the cache, or in memory."""
        numbers = np.arange(int(self.index.counts[shard]))
        if self.open(shard, whole=True) or (self.cache is not None and self.fetch(shard) is None):
            return self.select(shard, numbers)
        try:
            return self._state.stored.whole(shard).select(numbers, verify=False)
        except CorruptError as error:
            raise self._numbered(shard, error) from error.__cause__

    def requires_full_download(self, shard: int) -> bool:
        """Return whether single samples of the shard cannot be read from storage."""
        return self._state.stored.requires_full_download(shard)

    # --- inside

    def _fetch(
        self,
        cache: CacheDirectory,
        shard: int,
        needed_in: float,
        needs: Needs,
        received: Callable[[int], None] | None = None,
    ) -> tuple[mmap.mmap | Verdict, bool]:
        """Return the shard from the cache, or the reason why not; and whether it was fetched now."""
        made = False

        def fill(write: Write) -> None:
            def counted(data: bytes) -> None:
                write(data)
                if received is not None:
                    received(len(memoryview(data)))

            nonlocal made
            self._state.stored.download(shard, counted)
            made = True

        key, url = self.key(shard), self.storage.url
        found = retried(lambda: cache.fetch(key, fill, needed_in=needed_in, needs=needs, source=url))
        if made:
            count(Counter.MISSES)
            self._state.brought[shard] = self._identity(shard)
        return found, made

    def _count_opened(self, shard: int) -> None:
        """Count a hit if a shard opened from the cache was not downloaded for it."""
        if self._state.brought.pop(shard, None) is None:
            count(Counter.HITS)

    def _copied(self, shard: int, samples: NDArray[np.int64]) -> Selection | None:
        """Copy `samples` of a shard in the cache without keeping it open. Return None if it is not in the cache."""
        mapped = None if self.cache is None else self.cache.open(self.key(shard))
        if self.cache is None or mapped is None:
            return None
        try:
            view = self._parse(shard, mapped)
            if not self._trust_cache and not view.checks_samples:
                self.index.verify(shard, view, file=self.file(shard))
            return view.select(samples, verify=not self._trust_cache).copied()
        except CorruptError:
            self._discard(self.cache, shard)
            return None

    def _count(self, shard: int, opened: Opened, samples: int) -> None:
        """Check a shard as a whole once as many samples were checked singly as it has. Then none is checked again.

        If a shard in place is damaged, its samples are still checked singly: the undamaged ones can be read.
        """
        if opened.verified or opened.damaged:
            return
        opened.checked += samples
        if opened.checked > opened.view.samples:
            try:
                self._verify(shard, opened)
            except CorruptError:
                if self.cache is not None:  # the shard is fetched again
                    raise
                opened.damaged = True

    def _discard(self, cache: CacheDirectory, shard: int) -> None:
        """Remove a file of the cache that was found damaged."""
        self.close(shard)
        cache.discard(self.key(shard))

    def _numbered(self, shard: int, error: CorruptError) -> CorruptError:
        """Return a shard's error with the sample's number in the dataset."""
        named = re.fullmatch(r"sample (\d+)(,.*)?", error.place or "")
        if named is None:
            return error
        name = sample_name(int(named[1]), int(self.index.counts[:shard].sum()))
        return restated(error, place=f"sample {name}{named[2] or ''}")

    def _path(self, shard: int) -> Path:
        path = self.storage.path(self.index.name(shard))
        assert path is not None
        return path

    def _map(self, shard: int) -> mmap.mmap | memoryview:
        """Map a shard of a local dataset in place."""
        index = self._extents
        if index is None:
            return map_in_place(self._path(shard))
        self._state.stored.confirm(shard)
        (extent,) = index.extents(shard)
        return map_range(self._path(shard), extent.start, extent.stop)

    def _keep_cached(
        self,
        cache: CacheDirectory,
        shard: int,
        identity: Identity,
        mapped: mmap.mmap,
        *,
        whole: bool,
        verified: bool = False,
    ) -> bool:
        """Keep a mapped file and return True, unless the checks that are due find damage; then drop it."""
        try:
            self._keep(shard, identity, mapped, whole=whole, verified=verified or self._trust_cache)
        except CorruptError:
            self._discard(cache, shard)
            return False
        return True

    def _identity(self, shard: int) -> Identity:
        """The identity of the file to map next, taken before it is checked."""
        if self.cache is None:
            return Identity(str(self._path(shard)), in_cache=False)
        return Identity(str(self.cache.path(self.key(shard))), in_cache=True)

    def _keep(
        self,
        shard: int,
        identity: Identity,
        mapped: mmap.mmap | memoryview,
        *,
        whole: bool,
        verified: bool = False,
    ) -> None:
        view = self._parse(shard, mapped)
        opened = Opened(view, verified, identity)
        if (whole or not view.checks_samples) and not verified:
            self._verify(shard, opened)
        self._state.opened.add(shard, opened)

    def _parse(self, shard: int, mapped: mmap.mmap | memoryview) -> OpenedShard:
        """Parse the raw bytes of a shard, with its side object if it has one."""
        return self._state.side_objects.opened_index(shard).open(shard, mapped, file=self.file(shard))

    def _verify(self, shard: int, opened: Opened) -> None:
        """Check a whole shard against the index."""
        try:
            self.index.verify(shard, opened.view, file=self.file(shard))
        except CorruptError as error:
            raise self._numbered(shard, error) from error.__cause__
        opened.verified = True
        if self.mapped_in_place:
            self._verified[shard] = opened.identity.stamp


def _in_several(index: StoredIndex) -> bool:
    """Return whether shards consist of several objects, which cannot be mapped as one."""
    return isinstance(index, ReadsExtents) and len(index.counts) > 0 and len(index.extents(0)) > 1


def _on_network(storage: Storage) -> bool:
    """Return whether a storage is on a network file system."""
    path = storage.path(filenames.INDEX)
    return path is not None and network_file_system(path.parent)


_in_use: weakref.WeakSet[Shards] = weakref.WeakSet()


def _reset_in_child() -> None:
    """Drop state that belongs to the parent."""
    for shards in list(_in_use):
        shards._state_or_none = None
    _in_use.clear()


at_fork(after_in_child=_reset_in_child)
