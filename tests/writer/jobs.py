"""A job that writes or resumes a dataset, in a process of its own that can be killed."""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from botocore.httpsession import URLLib3Session

from mdsx.storage.remote import az, gs, s3
from mdsx.storage.remote.http import HttpStorage
from mdsx.writer import Writer
from tests.fork_server import CONTEXT

COLUMNS = {"id": "int64", "text": "str", "more": "json?"}
SHARD_SIZE = 1000

Hook = Callable[[str, str], None]
"""Called before each change of the disk and each request, with the operation and the file."""

PART_SIZE = "PART_SIZE"
"""In the environment of a job: larger objects are uploaded in parts of that many bytes."""


def sample(number: int) -> dict[str, Any]:
    more = None if number % 3 else {"n": number, "ä": [number] * (number % 4)}
    return {"id": number, "text": "é" * (number * 7 % 40), "more": more}


def write(url: str | Path, count: int, *, batch: int = 0, **options: Any) -> int:
    """Write the missing ones of samples 0 to count - 1, one by one or in batches. Return how many existed."""
    with Writer(url, COLUMNS, **{"shard_size": SHARD_SIZE, "resume": True, **options}) as out:
        before = out.samples
        if batch:
            for first in range(before, count, batch):
                some = [sample(number) for number in range(first, min(first + batch, count))]
                out.write_batch({name: [one[name] for one in some] for name in COLUMNS})
        else:
            for one in islice(map(sample, range(count)), before, None):
                out.write(one)
    return before


def start(
    url: str | Path,
    count: int,
    *,
    hook: Hook | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> ForkServerProcess:
    """Start `write` in a process. `hook`, a function of a module or a partial of one, may kill it."""
    return start_job(partial(write, str(url), count, **options), hook=hook, environment=environment)


def start_job(
    job: Callable[[], object], *, hook: Hook | None = None, environment: Mapping[str, str] | None = None
) -> ForkServerProcess:
    process = CONTEXT.Process(target=_run, args=(job, hook, {**os.environ, **(environment or {})}))
    process.start()
    return process


def _run(job: Callable[[], object], hook: Hook | None, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    if PART_SIZE in environment:
        s3.MULTIPART = gs.MULTIPART = az.MULTIPART = int(environment[PART_SIZE])
    if hook is not None:
        watch(hook)
    job()


def watch(hook: Hook) -> None:
    """Call `hook` for each change and request from now on in this process."""
    for name in ("open", "write", "fsync", "replace", "link", "unlink", "rmdir", "mkdir"):
        _watch(os, name, hook)
    _watch(URLLib3Session, "send", hook)
    _watch(HttpStorage, "_sent", hook)


def _watch(place: Any, name: str, hook: Hook) -> None:
    original = getattr(place, name)

    appears = name in ("replace", "link")  # a complete file gets its name

    def call(*args: Any, **kwargs: Any) -> Any:
        hook("replace" if appears else name, path_of(args[-1] if appears else args[0], kwargs))
        return original(*args, **kwargs)

    setattr(place, name, call)


def path_of(path: Any, options: Mapping[str, Any]) -> str:
    """Return the path that a call of the system was given, also if it was given relative to an open folder."""
    handle = next((options[name] for name in ("dir_fd", "dst_dir_fd") if options.get(name) is not None), None)
    return str(path) if handle is None else os.path.join(os.readlink(f"/proc/self/fd/{handle}"), path)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DieAt:
    """Dies before the n-th change of the disk."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def __call__(self, what: str, file: str) -> None:
        self.left -= 1
        if self.left < 0:
            die()


class DieBefore:
    """Dies before the file of that name appears, or disappears ("unlink")."""

    def __init__(self, name: str, what: str = "replace") -> None:
        self.name, self.what = name, what

    def __call__(self, what: str, file: str) -> None:
        if what == self.what and os.path.basename(file) == self.name:
            die()


class DieLast:
    """Dies before the file of that name appears, but first lets other files appear for a while."""

    def __init__(self, name: str, others: str) -> None:
        self.name = name
        self.others = others

    def __call__(self, what: str, file: str) -> None:
        if what == "replace" and os.path.basename(file) == self.name:
            end = time.monotonic() + 0.5
            while time.monotonic() < end and not os.path.exists(os.path.join(os.path.dirname(file), self.others)):
                time.sleep(0.005)
            die()


class Clock:
    """A hook that counts: this process can read how far another one has come."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._map: mmap.mmap | None = None
        file.write_bytes(bytes(8))

    def __call__(self, what: str, file: str) -> None:
        self._shared[:8] = (self.now() + 1).to_bytes(8, "little")

    def __getstate__(self) -> dict[str, object]:
        return {"_file": self._file, "_map": None}

    def now(self) -> int:
        return int.from_bytes(self._shared[:8], "little")

    @property
    def _shared(self) -> mmap.mmap:
        if self._map is None:
            with open(self._file, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), 8)
        return self._map


def life(job: Callable[[], object], file: Path, environment: Mapping[str, str] | None = None) -> int:
    """Return the ticks of an uninterrupted job; `file` is for its clock."""
    clock = Clock(file)
    assert not killed(start_job(job, hook=clock, environment=environment))
    return clock.now()


def instants(rng: random.Random, whole: int, *, last: int) -> list[int]:
    """Yield when to kill a job, once or in several starts: at any tick, or in its last ticks."""
    if rng.random() < 0.5:
        return [whole - rng.randrange(last)]
    return [rng.randrange(whole) for _ in range(rng.randrange(1, 4))]


def kill_at(process: ForkServerProcess, clock: Clock, tick: int, delay: float) -> bool:
    """Send SIGKILL `delay` seconds after the clock shows `tick`. Return False if the process had finished before."""
    while process.is_alive() and clock.now() < tick:
        time.sleep(0.0005)
    time.sleep(delay)
    process.kill()
    return killed(process)


def killed(process: ForkServerProcess) -> bool:
    """Wait for the end of a process. Return True if it was killed, False if it finished."""
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


Contents = dict[str, bytes | None]
"""Files with their bytes, and folders."""


def contents(root: Path) -> Contents:
    """Return every file below `root`, even hidden ones, and every folder (None)."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }
