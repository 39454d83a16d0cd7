"""Processes that read shards through a cache like jobs, and die by SIGKILL from outside or at a given place."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict
from mdsx.storage.cache.files import Cached, Write
from mdsx.storage.cache.ledger import Ledger

SIZE = 64 * 1024  # whole blocks, so a file takes exactly its size on disk
PIECE = 8192
_BEAT = struct.Struct("dQ")


def content(job: str, number: int) -> bytes:
    """Return the bytes of a shard; all shards differ."""
    return (f"{job} {number} ".encode() * SIZE)[:SIZE]


def key(job: str, number: int) -> CacheKey:
    return CacheKey(job.ljust(32, "0"), xxhash.xxh3_128_hexdigest(content(job, number)), SIZE)


def fetch(cache: CacheDirectory, job: str, number: int, needed_in: float = 0.0) -> mmap.mmap | Verdict:
    def fill(write: Write) -> None:
        data = content(job, number)
        for start in range(0, SIZE, PIECE):
            if start == SIZE // 2:
                in_mid_download()
            write(data[start : start + PIECE])
            time.sleep(0.0002)  # a network

    return cache.fetch(key(job, number), fill, needed_in=needed_in)


def in_mid_download() -> None:
    """Called when half of a shard is written."""


# --- where a process may die


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _on(owner: Any, name: str, *, before: bool, only: Callable[..., bool] = lambda *_: True) -> Callable[[int], None]:
    """Die before or after the n-th call of that name."""

    def arm(times: int) -> None:
        call, left = getattr(owner, name), [times]

        def called(*arguments: Any, **options: Any) -> Any:
            mine = only(*arguments)
            left[0] -= mine
            if mine and before and left[0] == 0:
                _die()
            result = call(*arguments, **options)
            if mine and not before and left[0] == 0:
                _die()
            return result

        setattr(owner, name, called)

    return arm


def _shard(path: str, *_: object) -> bool:
    return path.endswith(".mdsx")


def counted_scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an item at each scan of a cache's directory from now on."""
    scans, scan = list[int](), Ledger.scan

    def counted(self: Ledger) -> list[Cached]:
        scans.append(1)
        return scan(self)

    monkeypatch.setattr(Ledger, "scan", counted)
    return scans


PLACES: dict[str, Callable[[int], None]] = {
    "its limit is registered": _on(Ledger, "register", before=False),
    "the tally is taken": _on(Ledger, "take_tally", before=False),
    "a shard to evict is locked": _on(os, "unlink", before=True, only=_shard),
    "a shard was evicted": _on(os, "unlink", before=False, only=_shard),
    "the part is there without blocks": _on(os, "posix_fallocate", before=True),
    "the part has its blocks": _on(os, "posix_fallocate", before=False),
    "the tally is to be written": _on(Ledger, "write_tally", before=True),
    "half of the shard is written": _on(__import__("sys").modules[__name__], "in_mid_download", before=True),
    "all is written, not synced": _on(os, "fsync", before=True),
    "it is synced, not renamed": _on(os, "fsync", before=False),
    "it is about to be renamed": _on(os, "replace", before=True),
    "it is renamed, its lock still exclusive": _on(os, "replace", before=False),
}


# --- processes


def background(work: Callable[[], object]) -> int:
    """Return a forked process that calls `work` again and again, until it is killed or fails."""
    pid = os.fork()
    if pid == 0:
        try:
            while True:
                work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def killed(pid: int) -> int:
    """Kill a child and return its exit status: -SIGKILL, unless it ended by itself before."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Reader:
    """A forked process that reads random shards of `job` until the test stops it, and compares every byte."""

    WRONG = 3

    def __init__(self, directory: Path, limit: int, job: str, shards: int, seed: int, place: str | None = None) -> None:
        self._state = mmap.mmap(-1, mmap.PAGESIZE)
        self._stop = mmap.mmap(-1, mmap.PAGESIZE)
        self.beat()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                chance = random.Random(seed)
                if place is not None:
                    PLACES[place](chance.randint(1, 6))
                status = self._read(CacheDirectory(directory, limit), job, shards, chance)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)

    def _read(self, cache: CacheDirectory, job: str, shards: int, chance: random.Random) -> int:
        held: list[mmap.mmap] = []  # a lease is held while others are fetched, as a reader of several lanes does
        while not self._stop[0]:
            number = chance.randrange(shards)
            found = fetch(cache, job, number, chance.choice([0.0, 0.0, 1.0, 100.0]))
            if not isinstance(found, Verdict):
                if found[:] != content(job, number):
                    return self.WRONG
                held = [*held[-1:], found]
                if chance.random() < 0.3:
                    cache.touch(key(job, number), chance.uniform(0, 100))
            self.beat(not isinstance(found, Verdict))
        return 0

    def beat(self, more: int = 0) -> None:
        _BEAT.pack_into(self._state, 0, time.monotonic(), self.read + more)

    @property
    def read(self) -> int:
        """The number of shards that it read."""
        found: int = _BEAT.unpack_from(self._state)[1]
        return found

    @property
    def silent(self) -> float:
        """Seconds since its last progress."""
        last: float = _BEAT.unpack_from(self._state)[0]
        return time.monotonic() - last if last else 0.0  # it is being written

    def kill(self) -> int:
        """Kill it and return its exit status: -SIGKILL, even if it was killed before."""
        return killed(self.pid)

    def ended(self) -> int | None:
        """Its exit status if it ended by itself."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def stop(self, deadline: float) -> int | None:
        """Stop the process and return its exit status; None if it did not stop and was killed."""
        self._stop[0] = 1
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            if (status := self.ended()) is not None:
                return status
            time.sleep(0.01)
        self.kill()
        return None
