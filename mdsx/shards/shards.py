"""The shards of one dataset, wherever they are: in place, in the cache, or in storage to be read by range.

Rules of the room:
- A shard in place (local, uncompressed) is mapped where it stands: never copied, never deleted. On a network file
  system, or with `mmap=False`, it is read by `pread` instead, as ranges: an I/O error in a mapped file kills.
- Any other shard is mapped from the cache once it is there whole; until then its samples are read by range.
- Nothing that is handed out is unverified. Each sample is, by its row's checksum, which the row key binds to the shard;
  or the whole shard, by its XXH3-128 (`whole=True`). A check of the whole counts as long as the file's identity is the
  one seen before it (`Identity`): it is looked at for each run of batches and each read of a large sample. A damaged
  file of the cache is dropped and fetched anew; a damaged shard in place is an error that names the sample where it
  can. With `Cache(verify="size")`, files of the cache are trusted.
- An error that a prefetch finds in a whole shard is never dropped: the next read of the shard raises it.
- Everything that a fork or a pickle must not carry along lives in `_Runtime`, made anew in each process.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import ChangedError, CorruptError, FormatError, MdsxError, MissingError
from mdsx.format import Index, SampleDecoder, Schema, ShardView, check_shard, filenames, parse_header
from mdsx.process.threads import REQUESTS, Share
from mdsx.shards.download import DOWNLOAD_TRIES, download_shard, hash_mismatch, read_index
from mdsx.shards.gather import keep_freed_memory
from mdsx.shards.opened import Identity, Opened, OpenShards, make_room
from mdsx.shards.ranges import FramedShard, PlainShard, RawShard, StoredObject
from mdsx.shards.selection import Selection, select_mapped, select_ranges
from mdsx.storage import Storage, open_storage
from mdsx.storage.cache import Cache, CacheDirectory, CacheKey, Verdict
from mdsx.storage.local import map_whole
from mdsx.system import network_file_system

_SMALL = 16 * 1024  # bytes of an average sample, up to which hashing one costs less than a stat
_RAW_SHARDS = 1024  # of which ranges are read, whose ETags and last frames are kept

T = TypeVar("T")

_DEFAULT_CACHE = Cache()


class _Runtime:
    """What belongs to one process."""

    def __init__(self, leased: bool) -> None:
        self.lock = Lock()
        self.opened = OpenShards(leased)
        self.raw: OrderedDict[int, RawShard] = OrderedDict()
        self.wrong: dict[int, MdsxError] = {}  # what was found of shards that were brought ahead
        keep_freed_memory()
        self.requests = Share(REQUESTS)


class Shards:
    """Opens `url` and serves selections of its shards. Threads may share it; processes may inherit or unpickle it."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        cache: Cache = _DEFAULT_CACHE,
        mmap: bool = True,
        connections: int = 0,
        connect_timeout: float | None = None,
    ) -> None:
        """`connections` are opened beside the request for the index, for who will soon make many: of an empty cache."""
        self._trust_cache = cache.verify == "size"
        self.storage: Storage = open_storage(url, connect_timeout=connect_timeout)
        path = self.storage.path(filenames.INDEX)
        self.cache: CacheDirectory | None = None
        if path is None:
            self.cache = cache.open()
            if connections and self.cache.is_empty():
                self.storage.connect(filenames.INDEX, connections)
        self.index: Index = read_index(self.storage)
        self._small = int(self.index.raw_sizes.sum()) < _SMALL * self.index.samples
        self.local = path is not None
        self.mapped_in_place = (
            path is not None and mmap and self.index.compression is None and not network_file_system(path.parent)
        )
        if self.local and self.index.compression is not None:
            self.cache = cache.open()
        self._runtime_or_none: _Runtime | None = None

    def with_cache(self, cache: Cache) -> Shards:
        """The same shards, read through another cache where they are read through one."""
        other = copy(self)
        other._trust_cache = cache.verify == "size"
        if self.cache is not None:
            other.cache = cache.open()
        return other

    def check_cache(self) -> None:
        """Raise UsageError where the limit that was given for the cache cannot hold the largest shard."""
        if self.cache is not None:
            self.cache.check(int(self.index.raw_sizes.max(initial=0)), self.storage.url)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_runtime_or_none": None}

    @property
    def _runtime(self) -> _Runtime:
        runtime = self._runtime_or_none
        if runtime is None:
            runtime = self._runtime_or_none = _Runtime(leased=not self.mapped_in_place)
            _in_use.add(self)
        return runtime

    @property
    def schema(self) -> Schema:
        return self.index.schema

    def file(self, shard: int) -> str:
        """The shard's full name, for messages."""
        return f"{self.storage.url.rstrip('/')}/{self.index.name(shard)}"

    def key(self, shard: int) -> CacheKey:
        index = self.index
        return CacheKey(index.fingerprint, index.raw_hash(shard), int(index.raw_sizes[shard]))

    # --- whole shards

    def is_open(self, shard: int) -> bool:
        return shard in self._runtime.opened

    def open(self, shard: int, *, whole: bool) -> bool:
        """Whether the shard can be mapped now, in place or from the cache. `whole`: verify it also in place."""
        opened = self._runtime.opened.get(shard)
        if opened is not None and opened.unchanged():
            opened.used = True
            if whole and not opened.verified:
                self._verify(shard, opened)
            return True
        if opened is not None:
            self.close(shard)
        if not make_room(leased=not self.mapped_in_place):
            return False
        if self.mapped_in_place:
            self._keep(shard, self._identity(shard), _map(self._path(shard)), whole=whole)
            return True
        if self.cache is None:
            return False
        identity, mapped = self._identity(shard), self.cache.open(self.key(shard))
        return mapped is not None and self._keep_cached(self.cache, shard, identity, mapped, whole=whole)

    def fetch(self, shard: int, *, needed_in: float = 0.0) -> Verdict | None:
        """Bring a shard into the cache and map it; None when it is there, else why not (see CacheDirectory.fetch)."""
        assert self.cache is not None
        if self.open(shard, whole=True):
            return None
        result, made = self._fetch(self.cache, shard, needed_in)
        if isinstance(result, Verdict):
            return result
        if not make_room(leased=True):  # it is there, and `select` reads it
            return None
        kept = self._keep_cached(self.cache, shard, self._identity(shard), result, whole=True, verified=made)
        return None if kept else Verdict.BUSY

    def bring(self, shard: int, *, needed_in: float, received: Callable[[int], None]) -> Verdict | None:
        """Bring a shard into the cache without holding it open: for prefetch. `received` is told of bytes that came.

        Where it is damaged or another one, the next read of it raises the same error.
        """
        assert self.cache is not None
        wrong = self._runtime.wrong
        try:
            result, _ = self._fetch(self.cache, shard, needed_in, received)
        except (FormatError, ChangedError) as error:
            wrong[shard] = error
            raise
        wrong.pop(shard, None)
        return result if isinstance(result, Verdict) else None

    def close(self, shard: int) -> None:
        """Let go of a mapped shard; its lease ends when its last view is gone."""
        runtime = self._runtime
        runtime.opened.pop(shard)
        with runtime.lock:
            runtime.raw.pop(shard, None)

    def release(self, *, beyond: int = 0) -> bool:
        """Close shards of the cache, those used least recently first, until at most `beyond` bytes are open, or one
        shard; whether any was closed. Other jobs may evict them."""
        opened, closed = self._runtime.opened, False
        while opened.leased and opened.size > beyond and len(opened) > 1 and opened.pop_oldest():
            closed = True
        return closed

    # --- samples

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """`samples` (int64 [n]) of a shard: from its mapping if it is open, else copied out of the cache, where the
        process may hold no more leases, else by range."""
        opened = self._runtime.opened.get(shard)
        if opened is None:
            if (error := self._runtime.wrong.pop(shard, None)) is not None:
                raise error
            copied = self._copied(shard, samples)
            return self.select_ranges(shard, samples) if copied is None else copied
        opened.used = True
        try:
            self._count(shard, opened, len(samples))
            return select_mapped(opened.view, samples, verify=not opened.verified)
        except CorruptError:
            if self.cache is None:
                raise
            self._discard(self.cache, shard)
            return self.select_ranges(shard, samples)

    def decode(self, shard: int, sample: int, decoder: SampleDecoder) -> dict[str, Any] | None:
        """One sample of a shard that is open; None where it is not, or found to be damaged in the cache."""
        runtime = self._runtime_or_none
        opened = None if runtime is None else runtime.opened.get(shard)
        if opened is None:
            return None
        opened.used = True
        try:
            if self._small:  # to check it costs less than to look at the file
                opened.checked += 1
                return decoder.decode(opened.view, sample, verify=True)
            if not opened.verified:
                self._count(shard, opened, 1)
            if opened.verified and not opened.unchanged():
                self.close(shard)
                return None
            return decoder.decode(opened.view, sample, verify=not opened.verified)
        except CorruptError:
            if self.cache is None:
                raise
            return None

    def select_ranges(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """`samples` of a shard by range requests; damage is fetched once more before it is an error."""

        def select(raw: RawShard) -> Selection:
            return select_ranges(
                raw,
                samples,
                schema=self.schema,
                row_key=self.index.row_key(shard),
                rows_offset=self.index.rows_offset,
                count=int(self.index.counts[shard]),
                raw_size=int(self.index.raw_sizes[shard]),
            )

        return self._by_range(shard, select)

    def select_sound(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        """Each of `samples` by itself, by range requests, or what is wrong with it.

        Raises what is wrong with the shard: its header is damaged or another shard's, or storage fails.
        """
        try:
            return [*self.select_ranges(shard, samples).each()]
        except CorruptError:
            self._by_range(shard, lambda raw: self._check_header(shard, raw))
        found: list[Selection | CorruptError] = []
        for place in range(len(samples)):
            try:
                found.append(self.select_ranges(shard, samples[place : place + 1]))
            except CorruptError as error:
                found.append(error)
        return found

    # --- inside

    def _by_range(self, shard: int, read: Callable[[RawShard], T]) -> T:
        for attempt in range(1, DOWNLOAD_TRIES + 1):
            try:
                return read(self._raw(shard))
            except CorruptError:
                with self._runtime.lock:
                    self._runtime.raw.pop(shard, None)  # with its decoded frames
                if attempt == DOWNLOAD_TRIES:
                    raise
        raise AssertionError("unreachable")

    def _check_header(self, shard: int, raw: RawShard) -> None:
        index = self.index
        (data,) = raw.read([(0, index.rows_offset)])
        size, key = int(index.raw_sizes[shard]), index.row_key(shard)
        header = parse_header(data, size=size, file=raw.file, schema=self.schema, row_key=key)
        self._check_sizes(shard, header.samples, header.rows_offset, size)

    def _copied(self, shard: int, samples: NDArray[np.int64]) -> Selection | None:
        """`samples` of a shard in the cache, which is not kept open; None where it is not there."""
        mapped = None if self.cache is None else self.cache.open(self.key(shard))
        if self.cache is None or mapped is None:
            return None
        try:
            view = self._view(shard, mapped)
            return select_mapped(view, samples, verify=not self._trust_cache).copied()
        except CorruptError:
            self._discard(self.cache, shard)
            return None

    def _count(self, shard: int, opened: Opened, samples: int) -> None:
        """Where as many samples were checked one by one as the shard has, check it whole: then no more of them are.

        One that is damaged in place is checked one by one on: those of its samples that are sound can be read.
        """
        if opened.verified or opened.damaged:
            return
        opened.checked += samples
        if opened.checked > opened.view.samples:
            try:
                self._verify(shard, opened)
            except CorruptError:
                if self.cache is not None:  # it is fetched anew
                    raise
                opened.damaged = True

    def _discard(self, cache: CacheDirectory, shard: int) -> None:
        """A file of the cache was found damaged."""
        self.close(shard)
        cache.discard(self.key(shard))

    def _fetch(
        self, cache: CacheDirectory, shard: int, needed_in: float, received: Callable[[int], None] | None = None
    ) -> tuple[mmap.mmap | Verdict, bool]:
        """The shard, or why not; and whether it was made here, not found."""
        made = False

        def fill(write: Callable[[bytes], object]) -> None:
            def counted(data: bytes) -> None:
                write(data)
                if received is not None:
                    received(len(data))

            nonlocal made
            download_shard(self.storage, self.index, shard, counted, file=self.file(shard))
            made = True

        for attempt in range(1, DOWNLOAD_TRIES + 1):
            try:
                return cache.fetch(self.key(shard), fill, needed_in=needed_in), made
            except CorruptError:
                if attempt == DOWNLOAD_TRIES:
                    raise
        raise AssertionError("unreachable")

    def _path(self, shard: int) -> Path:
        path = self.storage.path(self.index.name(shard))
        assert path is not None
        return path

    def _raw(self, shard: int) -> RawShard:
        runtime = self._runtime
        with runtime.lock:
            raw = runtime.raw.get(shard)
            if raw is None:
                raw = runtime.raw[shard] = self._open_raw(shard, runtime)
                if len(runtime.raw) > _RAW_SHARDS:
                    runtime.raw.popitem(last=False)
            return raw

    def _open_raw(self, shard: int, runtime: _Runtime) -> RawShard:
        size = int(self.index.sizes[shard])
        stored = StoredObject(self.storage, self.index.name(shard), size=size, pool=runtime.requests)
        if self.index.compression is None:
            return PlainShard(stored)
        return FramedShard(stored, size=size, raw_size=int(self.index.raw_sizes[shard]))

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
        """Whether the mapped file is sound, as far as was checked; one that is not is dropped, to be fetched anew."""
        try:
            self._keep(shard, identity, mapped, whole=whole, verified=verified or self._trust_cache)
        except CorruptError:
            self._discard(cache, shard)
            return False
        return True

    def _identity(self, shard: int) -> Identity:
        """Of the file that is mapped next: seen before it is checked."""
        if self.cache is None:
            return Identity(str(self._path(shard)), in_cache=False)
        return Identity(str(self.cache.path(self.key(shard))), in_cache=True)

    def _keep(self, shard: int, identity: Identity, mapped: mmap.mmap, *, whole: bool, verified: bool = False) -> None:
        opened = Opened(self._view(shard, mapped), verified, identity)
        if whole and not verified:
            self._verify(shard, opened)
        self._runtime.opened.add(shard, opened)

    def _view(self, shard: int, mapped: mmap.mmap) -> ShardView:
        """The mapped file as the shard that it should be."""
        index = self.index
        view = ShardView.parse(mapped, file=self.file(shard), schema=self.schema, row_key=index.row_key(shard))
        self._check_sizes(shard, view.samples, view.rows_offset, len(mapped))
        return view

    def _check_sizes(self, shard: int, *found: int) -> None:
        index = self.index
        expected = int(index.counts[shard]), index.rows_offset, int(index.raw_sizes[shard])
        if found != expected:
            raise CorruptError(
                "the shard is not the one that the index names",
                file=self.file(shard),
                place="number of samples, offset of the rows, size",
                found=found,
                expected=expected,
            )

    def _verify(self, shard: int, opened: Opened) -> None:
        """The whole shard against the index; where it differs, find the place by the full check."""
        found, expected = xxhash.xxh3_128_hexdigest(opened.view.buffer), self.index.raw_hash(shard)
        if found != expected:
            key = self.index.row_key(shard)
            for problem in check_shard(opened.view.buffer, file=self.file(shard), schema=self.schema, row_key=key):
                raise problem
            raise hash_mismatch(self.file(shard), found, expected)
        opened.verified = True


def _map(path: Path) -> mmap.mmap:
    if not os.path.lexists(path):
        raise MissingError("the index names this shard, but it is not there", file=str(path))
    try:
        return map_whole(path)
    except ValueError as error:  # an empty file cannot be mapped
        raise CorruptError("the shard is empty", file=str(path)) from error


_in_use: weakref.WeakSet[Shards] = weakref.WeakSet()


def _begin_anew() -> None:
    """In a forked child."""
    for shards in list(_in_use):
        shards._runtime_or_none = None
    _in_use.clear()


os.register_at_fork(after_in_child=_begin_anew)
