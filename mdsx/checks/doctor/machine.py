"""Check that a machine's cache directory and limits suffice: disk, locks, descriptors and shared memory."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

from mdsx.base.process import most_descriptors, most_leases
from mdsx.base.sizes import format_size
from mdsx.base.system import fcntl, network_file_system, resource
from mdsx.checks.doctor.finding import Finding, ok, problem, refusal, warning
from mdsx.storage.cache import SHARDS, failure, nearest

_SHARE = 0.8  # of the free space: what a cache without a limit may use
_UNKNOWN_NEED = 10**9  # bytes, if no dataset is known
_ANOTHER = "use another directory: --cache DIR, or $MDSX_CACHE"
_MORE_SPACE = f"free some space (`mdsx cache prune`), or {_ANOTHER}"
_FEW = 512  # descriptors: for connections and files of 88 threads, pipes of workers, and a few dozen shards
_MANY = 65536
_SHARED = 256 * 2**20  # bytes of /dev/shm; containers have 64 MiB unless they ask for more
_SHM = Path("/dev/shm")
_TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1]) as file:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("held")
"""


def room_of(directory: Path) -> int:
    """Return how many bytes a cache in `directory` may use by default."""
    return int(_SHARE * sum(_space(directory)))


def check_machine(directory: Path | None, *, limit: int | None, needed: int | None, in_use: int) -> Iterator[Finding]:
    """Check the cache in `directory`, with its `limit` if one is given, for a run that needs `needed` bytes of shards
    and has `in_use` shards open at a time. `needed` is None if no dataset is known, `directory` if there is no cache.
    """
    if directory is not None and (yield from _check_directory(directory)):
        yield _check_space(directory, limit, needed)
    yield _check_descriptors(in_use)
    yield _check_shared_memory()


def _check_directory(directory: Path) -> Generator[Finding, None, bool]:
    """Return whether the directory can be written."""
    place = nearest(directory)
    try:
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
            file.write(b"probe")
            file.flush()
            free, exclusive = _locks(file.name), False
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                exclusive = not _locks(file.name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            yield problem("space", f"{directory}: the disk is full, or a quota on it ({error.strerror})", _MORE_SPACE)
            return False
        why = refusal("cache", failure(directory, error)).found
        yield problem("cache", why, f"make it writable by this user, or {_ANOTHER}")
        return False
    made = "" if place == directory else ", and will be created"
    if network_file_system(directory):
        advice = "give each machine a directory on a disk of its own: --cache DIR, or $MDSX_CACHE"
        yield warning("cache", f"{directory} can be written{made}, but is on a network file system", advice)
    else:
        yield ok("cache", f"{directory} can be written{made}")
    if free and exclusive:
        yield ok("locks", "a lock excludes other processes")
    else:
        found = f"locks (flock) do not work in {place}: processes would corrupt each other's cache"
        yield problem("locks", found, "use a local file system such as ext4 or xfs: --cache DIR, or $MDSX_CACHE")
    return True


def _locks(path: str) -> bool:
    """Return whether a lock excludes another process."""
    command = [sys.executable, "-I", "-S", "-c", _TRY_LOCK, path]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:  # a file system that hangs
        return False
    return said.returncode == 0 and said.stdout == ""


def _check_space(directory: Path, limit: int | None, needed: int | None) -> Finding:
    free, held = _space(directory)
    text = f"{format_size(free)} are free" + (f", and the cache holds {format_size(held)}" if held else "")
    figures = {"free": free, "held": held, "needed": needed}
    least = _UNKNOWN_NEED if needed is None else needed
    if limit is not None and limit > free + held:
        return problem("space", f"{text}: less than the limit of {format_size(limit)}", _MORE_SPACE, **figures)
    if least > free + held:
        return problem("space", f"{text}: a run needs {format_size(least)}", _MORE_SPACE, **figures)
    return ok("space", text, **figures)


def _check_descriptors(in_use: int) -> Finding:
    most, hard = most_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    text = f"a process may have {most:,} open files"
    figures = {"limit": most, "shards_open": min(most_leases(), in_use)}
    advice = f"`ulimit -n {_MANY}` before the job starts"
    if resource.RLIM_INFINITY != hard < _MANY:
        advice += f"; the hard limit is {hard:,}: raise it by limits.conf, LimitNOFILE= or --ulimit nofile"
    if most < _FEW:
        found = f"{text}; mdsx needs {_FEW} for its connections, workers and shards"
        return problem("descriptors", found, advice, **figures)
    if most_leases() < in_use:
        found = f"{text}: {most_leases():,} of the {in_use:,} shards in use stay open, the others are reopened"
        return warning("descriptors", found, advice, **figures)
    return ok("descriptors", text, **figures)


def _check_shared_memory() -> Finding:
    if not _SHM.is_dir():
        return ok("shared memory", "there is no /dev/shm, and mdsx's shared memory needs none")
    size = shutil.disk_usage(_SHM).total
    text = f"/dev/shm has {format_size(size)}"
    if size >= _SHARED:
        return ok("shared memory", text, size=size)
    found = f"{text}: enough for mdsx's columns, but not for tensors of a transform, or for PyTorch's DataLoader"
    advice = "start the container with --shm-size=8g or --ipc=host (Kubernetes: an emptyDir with medium: Memory)"
    return warning("shared memory", found, advice, size=size)


def _space(directory: Path) -> tuple[int, int]:
    """Return the free bytes on the disk of `directory`, which need not exist, and the bytes of the cache's shards."""
    held = 0
    with suppress(OSError):  # it may not be entered
        for path in directory.glob(SHARDS):
            with suppress(OSError):  # evicted meanwhile
                held += path.stat().st_size
    return shutil.disk_usage(nearest(directory)).free, held
