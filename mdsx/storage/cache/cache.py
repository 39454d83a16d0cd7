"""The bounded cache: one directory, shared by all processes of all jobs on a node. The directory is its only state.

`<fingerprint>/<raw hash>.mdsx` is a complete, verified, uncompressed shard, and never changes. With the suffix `.part`,
the shard is being made, already at its full size. `<fingerprint>/<hash>.u32` has lengths of samples: it starts with
only zeros, all processes that hold it fill it in, and hashes in it show which lengths are present.
`<fingerprint>/<hash>.side` is an object that is read with a shard, and `.index` a large index, in its own folder. Rules
for all files:
- A process that maps a shard holds a shared lock on it (a lease) until the last view of the mapping dies. Evicting a
  file takes its exclusive lock, so a mapped shard is never evicted.
- A process that makes a shard holds the exclusive lock on its `.part`. An unlocked `.part` belongs to a dead process;
  any process that needs the space or the name removes it.
- Files are added and removed with the ledger's lock held. With it held, locks on shards are only tried, never waited
  for. There is no other wait: if there is no room, or another process makes the shard, `fetch` returns the reason at
  once.
- A `.part` gets all its disk blocks when it is created, after the tally has room for it. So the files together never
  exceed the limit.
- Announcements of needs (`announced.py`) take 16 bytes for each shard that a process reads. They are not in the tally,
  but reduce the limit.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Owner, exhausted
from mdsx.base.sizes import format_size, parse_size
from mdsx.base.system import fcntl, network_file_system
from mdsx.base.warn import warn
from mdsx.errors import TransportError, UsageError
from mdsx.storage.cache import filenames
from mdsx.storage.cache.announced import Announcement, Announcements
from mdsx.storage.cache.directory import bypass, directory_of, disk_size, failure, is_folder
from mdsx.storage.cache.eviction import DiskFiles, Evictor, Needs
from mdsx.storage.cache.files import (
    Hold,
    Write,
    allocate,
    evict,
    filled,
    is_held,
    look_at,
    map_held,
    remove,
    rename,
    resize,
    size_of,
    write_into,
)
from mdsx.storage.cache.ledger import Ledger

if TYPE_CHECKING:
    from typing_extensions import Buffer

_UNKNOWN: Needs = MappingProxyType({})
_SHARE = 32  # announcements take at most 1/32 of the limit
_FEWEST = 2  # shards that must fit beside them: with fewer, there is nothing to choose
_NAMES = {
    "shard": filenames.shard,
    "lengths": filenames.lengths,
    "side object": filenames.side_object,
    "index": filenames.index,
}


class Verdict(Enum):
    """Why a shard was not fetched."""

    NO_ROOM = "no room: everything that may be evicted for it is in use"
    BUSY = "busy: another process or thread is fetching it"


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A shard: its dataset's fingerprint, the hash of its raw bytes, and their number, `exact` or an estimate.

    Other `kind`s: a file of lengths, with the hash of what the lengths are of; a side object, with its own hash; or an
    index, with the hashes of its URL and of its version.
    """

    fingerprint: str
    raw_hash: str
    raw_size: int
    exact: bool = True
    kind: Literal["shard", "lengths", "side object", "index"] = "shard"


@dataclass(slots=True)
class _Process:
    """The state of one process."""

    owner: Owner
    ledger: Ledger
    announcements: Announcements
    evictor: Evictor
    lock: threading.Lock  # taken before the ledger's, by a thread that counts or evicts
    limit: int | None = None  # as last read


class CacheDirectory:
    """The cache in `directory` (default: `$MDSX_CACHE`, else `~/.cache/mdsx`), which stays within `limit` bytes.

    `limit` is bytes or text such as "200GB"; by default 80 % of the free space plus the cache's own files. The smallest
    limit of all processes that share the directory applies. A cache may be pickled, forked, and used by several
    threads.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, limit: int | str | None = None) -> None:
        self.directory = directory_of(directory)
        self._needs = self.directory / filenames.NEEDS
        self._given = None if limit is None else parse_size(limit, name="the cache's limit")
        self._process_or_none: _Process | None = None
        self._known = False  # whether this process, or the one that passed the object on, has used the directory
        if network_file_system(self.directory):
            warn(
                f"the cache {self.directory} is on a network file system, where locks may not work across machines; "
                "give each machine a directory on its own disk",
            )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_process_or_none": None}

    @property
    def limit(self) -> int:
        """The bytes that the directory may hold now."""
        process = self._process()
        try:
            with process.lock, process.ledger.locked():
                self._register(process)
                process.limit = process.ledger.limit()
                return process.limit
        except OSError as error:
            bypass(self.directory, error, costs=False, limited=self._given is not None)
            return disk_size(self.directory) if self._given is None else self._given

    def check(self, largest: int, file: str) -> None:
        """Raise UsageError if the given limit is less than `largest`, the bytes of the largest shard of the dataset
        `file`. Warn if the directory cannot hold that shard for another reason."""
        if self.limit >= largest:
            return
        needed = f"the largest shard ({format_size(largest)})"
        if self._given is not None and self._given < largest:
            raise UsageError(
                f"the cache's limit is {format_size(self._given)}, below {needed}",
                file=file,
                hint=f"give cache=mdsx.Cache(limit={largest}) or more",
            )
        warn(
            f"{self.directory}: the cache may hold {format_size(self.limit)}, below {needed} of {file}: the disk is "
            "nearly full, or another job gave the cache a small limit; shards that do not fit are read by range, in "
            "every epoch; give another directory (cache=, or $MDSX_CACHE), or free some space",
            seen_by="node",
        )

    @property
    def recent_limit(self) -> int:
        """The limit as this process last read it. No I/O, except the first time."""
        limit = self._process().limit
        return self.limit if limit is None else limit

    def path(self, key: CacheKey) -> Path:
        """Return the shard's path, whether it exists or not."""
        return self.directory / key.fingerprint / _NAMES[key.kind](key.raw_hash)

    def is_being_made(self, key: CacheKey) -> bool:
        """Whether this or another process is making the shard now."""
        path = self.path(key)
        return is_held(path.with_name(filenames.unfinished(path.name)))

    def is_empty(self) -> bool:
        """Whether the cache has no shards; False if its directory may not be read."""
        try:
            return not any(self.directory.glob(filenames.SHARDS))
        except OSError:
            return False

    def open(self, key: CacheKey) -> mmap.mmap | None:
        """Return the shard, leased until the last view of the mapping dies; None if it is not in the cache."""
        path = self.path(key)
        if not is_folder(path.parent):  # a symbolic link would lead elsewhere
            return None
        try:
            hold = Hold(path, os.O_RDONLY)
        except OSError as error:  # missing, or another user's
            if (too_many := exhausted(error, str(path))) is not None:
                raise too_many from error
            return None
        mapped = None
        try:
            # If it is locked exclusively, the shard is being evicted or was just finished: treat it as missing for now.
            leased = hold.try_lock(fcntl.LOCK_SH) and hold.leads_to(path)
            size = os.fstat(hold.descriptor).st_size
            if leased and (size == key.raw_size if key.exact else size):  # an empty file cannot be mapped
                mapped = map_held(hold, path)
                self._process().evictor.set_next_use(path, 0.0)
        except OSError as error:
            raise failure(self.directory, error) from error
        finally:
            if mapped is None:
                hold.release()
        return mapped

    def fetch(
        self,
        key: CacheKey,
        fill: Callable[[Write], None] | None,
        *,
        needed_in: float = 0.0,
        needs: Needs = _UNKNOWN,
        source: str = "",
    ) -> mmap.mmap | Verdict:
        """Return the shard, leased as by `open`. If it is not in the cache, `fill` makes it. Otherwise return the
        reason at once.

        `fill(write)` writes the shard's raw bytes in order, and raises an error if they are damaged; then the caller
        gets the error, and no bytes stay. Without `fill`, all bytes are 0. `needed_in`: 0 if the shard is needed now,
        which may evict any file without a lease; otherwise the seconds until then, and only files needed later are
        evicted. `needs`: when this process needs the shards of some datasets next, which decides what to evict. If the
        key's size is an estimate, `fill` is called before there is room for the exact size. `source`: the dataset's
        URL, without credentials, which is recorded for `mdsx cache`. If the directory is full, removed or read-only,
        there is no room. Raise MdsxError if it cannot be used at all.
        """
        path = self.path(key)
        if (mapped := self.open(key)) is not None:
            if needed_in:
                self._process().evictor.set_next_use(path, needed_in)
            return mapped
        part = path.with_name(filenames.unfinished(path.name))
        try:
            found = self._admit(key, path, part, needed_in, needs, source)
            if not isinstance(found, Hold):
                return found
            try:
                size = key.raw_size
                if not key.exact and fill is not None:
                    pieces: list[bytes] = []
                    fill(pieces.append)
                    fill, size = partial(_write_all, pieces), sum(len(memoryview(piece)) for piece in pieces)
                    if not self._resize(found, key.raw_size, size, needed_in, needs):
                        self._withdraw(found, part)
                        return Verdict.NO_ROOM
                written = size if fill is None else filled(found.descriptor, fill)
                if written != size:
                    raise TransportError("the shard has another size", file=str(path), found=written, expected=size)
                os.fsync(found.descriptor)
                mapped = self._publish(found, part, path)
            except BaseException:
                self._withdraw(found, part)
                raise
        except OSError as error:
            bypass(self.directory, error, limited=self._given is not None)
            return Verdict.NO_ROOM
        if mapped is None:  # the directory was removed
            found.release()
            return Verdict.NO_ROOM
        self._process().evictor.set_next_use(path, needed_in)  # until then, the lease keeps it
        return mapped

    def write(self, key: CacheKey, pieces: Iterable[tuple[int, Buffer]]) -> bool:
        """Write `pieces` in order, each at its offset, to the file of lengths `key`, which this process holds. Return
        whether that was possible. All processes write the same bytes at the same offset."""
        try:
            hold = Hold(self.path(key), os.O_RDWR)
        except OSError:  # removed with the directory, or another user's
            return False
        try:
            return write_into(hold.descriptor, pieces, key.raw_size)
        finally:
            hold.release()

    def touch(self, key: CacheKey, needed_in: float) -> None:
        """Note in how many seconds the shard, which is not needed now, will be needed again."""
        self._process().evictor.release(self.path(key), needed_in)

    def announce(
        self, fingerprint: str, heads: NDArray[np.uint64], largest: int, needs: Needs = _UNKNOWN
    ) -> Announcement | None:
        """Return the file in which this process announces when it next needs the shards with these heads (uint64 [n],
        sorted; see ShardNames.by_head). All processes evict by it. `needs`: as in `fetch`.

        Return None if the directory is not writable, or the limit is too small: all announcements may take 1/32 of it,
        and two shards of `largest` bytes must fit beside them.
        """
        process, size = self._process(), Announcement.size(len(heads))
        ledger = process.ledger
        with suppress(OSError), process.lock, ledger.locked():
            self._register(process)
            limit, announcements = ledger.limit(), process.announcements
            most = min(limit // _SHARE, limit - _FEWEST * largest)
            if announcements.size() + size > most:
                announcements.scan()  # removes those of dead processes
            if (announced := announcements.size() + size) <= most:
                room = limit - announced
                total = process.evictor.make_room(self._total(process, needs), 0, room, 0.0, needs)
                made = Announcement(self._needs, fingerprint, heads) if total <= room else None
                ledger.write_tally(total)
                return made
        return None

    def discard(self, key: CacheKey) -> None:
        """Remove a shard that was found damaged, if possible. Existing mappings of it stay valid."""
        process = self._process()
        try:
            with process.lock, process.ledger.locked():
                total = process.ledger.take_tally()
                size = size_of(self.path(key))
                remove(self.path(key))
                if total is not None:
                    process.ledger.write_tally(total - size)
        except OSError as error:
            bypass(self.directory, error, limited=self._given is not None)

    # --- inside

    def _process(self) -> _Process:
        process = self._process_or_none
        if process is None or not process.owner.here:
            ledger, announcements = Ledger(self.directory, known=self._known), Announcements(self._needs)
            evictor = Evictor(DiskFiles(ledger, announcements))
            process = self._process_or_none = _Process(Owner(), ledger, announcements, evictor, threading.Lock())
        return process

    def _register(self, process: _Process) -> None:
        """Register this process's limit, and evict down to it. Call it with the ledger's lock held."""
        ledger = process.ledger
        if not ledger.is_registered():
            ledger.register(self._given)
            self._known = True
            ledger.take_tally()
            ledger.write_tally(process.evictor.shrink(self._room(process)))

    def _room(self, process: _Process) -> int:
        """Return how many bytes all shards together may take."""
        process.limit = process.ledger.limit()
        return process.limit - process.announcements.size()

    def _total(self, process: _Process, needs: Needs) -> int:
        """Return the bytes of all shards. The caller must write the tally."""
        total = process.ledger.take_tally()
        return process.evictor.scan(needs) if total is None else total

    def _admit(
        self, key: CacheKey, path: Path, part: Path, needed_in: float, needs: Needs, source: str
    ) -> Hold | mmap.mmap | Verdict:
        """Return the exclusive hold on a new `.part` of full size, or the existing shard, or the reason for neither."""
        process = self._process()
        ledger = process.ledger
        with process.lock, ledger.locked():
            self._register(process)
            mapped = self.open(key)
            if mapped is not None:
                return mapped
            total = self._total(process, needs)
            for rubbish in (part, path):  # a dead process's, or a complete one of the wrong size
                if (found := look_at(rubbish)) is not None:
                    if not evict(rubbish):
                        ledger.write_tally(total)
                        return Verdict.BUSY
                    total -= found.size
            room = self._room(process)
            total = process.evictor.make_room(total, key.raw_size, room, needed_in, needs)
            if total + key.raw_size > room:
                ledger.write_tally(total)
                return Verdict.NO_ROOM
            hold = allocate(part, key.raw_size)
            ledger.write_tally(total + key.raw_size)
            if source:
                with suppress(OSError):  # only information for people
                    Hold(part.parent / filenames.source(source), os.O_RDWR | os.O_CREAT).release()
            return hold

    def _resize(self, hold: Hold, size: int, new: int, needed_in: float, needs: Needs) -> bool:
        """Resize a `.part` of the estimated `size` to `new`. Return whether there is room for it."""
        process = self._process()
        ledger = process.ledger
        with process.lock, ledger.locked():
            total, room = self._total(process, needs), self._room(process)
            total = process.evictor.make_room(total, new - size, room, needed_in, needs)
            if fits := total + new - size <= room:
                resize(hold.descriptor, size, new)
                total += new - size
            ledger.write_tally(total)
            return fits

    def _publish(self, hold: Hold, part: Path, path: Path) -> mmap.mmap | None:
        """Turn the finished `.part` into a shard, and its lock into a lease. Return None if it was removed."""
        process = self._process()
        with process.ledger.locked():  # so that no process takes the shard's lock while it changes
            if not hold.leads_to(part):
                return None
            rename(part, path.name)
            hold.lock(fcntl.LOCK_SH)
            return map_held(hold, path)

    def _withdraw(self, hold: Hold, part: Path) -> None:
        """Remove a `.part`. If that fails, it counts as a dead process's."""
        process = self._process()
        try:
            with suppress(OSError), process.lock, process.ledger.locked():
                total = process.ledger.take_tally()
                size = size_of(part) if hold.leads_to(part) else 0
                if size:
                    remove(part)
                if total is not None:
                    process.ledger.write_tally(total - size)
        finally:
            hold.release()


def _write_all(pieces: list[bytes], write: Write) -> None:
    for piece in pieces:
        write(piece)
