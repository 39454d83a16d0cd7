"""Storage on a local disk: a directory.

A put writes a hidden temporary file next to the target, syncs it, renames it and syncs the directory. The temporary
file is locked while its writer lives, so that only files of dead writers are ever discarded. Before its first put into
a directory, a storage syncs that directory and its parents, so that names left by a dead process are durable before
anything builds on them. A replace holds the lock of another such file while it compares and puts.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mdsx.base.decompress import MOST_UNPACKED, most_unpacked
from mdsx.base.process import exhausted
from mdsx.base.system import fcntl, map_file, stored_bytes
from mdsx.errors import (
    ChangedError,
    CorruptError,
    ForbiddenError,
    MissingError,
    TransportError,
    TruncatedError,
    UsageError,
    shown,
)
from mdsx.format import filenames
from mdsx.storage.base import Choose, Entry, Piece, Room, Sink, check_key
from mdsx.storage.below import Folder, LinkError, opened, remove_at, sync

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHUNK = 2**20
_PATIENCE = 60.0  # seconds to wait for another replace of the same file
_PAUSE = 0.01
_TRIES = 20  # to put into a directory that others remove
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""Errors of a file system without hard links."""


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path. Raise UsageError if no file can have it, and MissingError if it is relative to a
    working directory that was removed."""
    try:
        found = os.path.abspath(path)
        if b"\0" in os.fsencode(found):
            raise UsageError("a path may not have zero bytes", found=shown(found))
        return Path(found)
    except UnicodeEncodeError:
        raise UsageError("the path is not text that a file's name can have", found=shown(path)) from None
    except FileNotFoundError:
        hint = "change to a directory that exists, or give an absolute path"
        raise MissingError("the working directory does not exist any more", file=str(path), hint=hint) from None


class LocalStorage:
    """The files below the directory `root`, which need not exist yet."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = absolute(root)
        self._own = filenames.names_of_part(self._root.parts)  # folders named by mdsx, which may not be links
        self._top = self._root.parents[len(self._own) - 1] if self._own else self._root  # the user's, which may be
        self._settled: set[str] = set()  # durable folders below `_top`

    @property
    def url(self) -> str:
        return str(self._root)

    def path(self, key: str) -> Path | None:
        return self._path(key)

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        path = self._path(key)
        with _errors(path), _open_file(path) as file:
            status = os.fstat(file.fileno())
            found = _etag(status)
            if etag is not None and etag != found:
                raise ChangedError("the file was replaced while it was read", file=str(path))
            stop = status.st_size if stop is None else min(stop, status.st_size)
            if start > status.st_size or (start == status.st_size and start > 0):
                raise TruncatedError(
                    "the file ends before the bytes asked for", file=str(path), found=status.st_size, expected=start + 1
                )
            _check_holes(file.fileno(), start, stop, path)
            data = b"".join(_read(file.fileno(), start, stop, at_once=2**30))  # join does not copy a single chunk
            if len(data) < stop - start:
                raise TruncatedError(
                    "the file was truncated while it was read", file=str(path), found=len(data), expected=stop - start
                )
            return Piece(data, found, status.st_size)

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None, room: Room | None = None) -> None:
        path = self._path(key)
        with _errors(path), _open_file(path) as file:
            status = os.fstat(file.fileno())
            if etag is not None and etag != _etag(status):
                raise ChangedError("the file was replaced", file=str(path))
            if status.st_size != size:
                kind = TruncatedError if status.st_size < size else ChangedError
                raise kind("the file has another size", file=str(path), found=status.st_size, expected=size)
            _check_holes(file.fileno(), 0, size, path)
            for chunk in _read(file.fileno(), 0, size) if room is None else _read_into(file, room(size)):
                sink(chunk)  # type: ignore[arg-type]  # a view only if the caller gave `room`
                size -= len(chunk)
            if size:
                raise TruncatedError(
                    "the file was truncated while it was read", file=str(path), found=f"{size} bytes fewer"
                )

    def connect(self, key: str, count: int) -> None:
        return

    def put(self, key: str, *pieces: Buffer) -> None:
        self._put(key, pieces, Folder.rename)

    def create(self, key: str, data: Buffer) -> None:
        self._put(key, [data], _link)

    def _put(self, key: str, pieces: Sequence[Buffer], name: _Name) -> None:
        """Write a temporary file, and let `name` give it its final name.

        If others remove the directory while it is empty, make it again."""
        for _ in range(_TRIES):
            try:
                return self._put_once(key, pieces, name)
            except MissingError:
                continue
        return self._put_once(key, pieces, name)

    def _put_once(self, key: str, pieces: Sequence[Buffer], name: _Name) -> None:
        with _errors(self._path(key)), self._made(key) as folder:
            _store(folder, key, pieces, name)

    def replace(self, key: str, data: Buffer, *, etag: str) -> None:
        path = self._path(key)
        with _errors(path):
            try:
                with self._opened(key) as folder, _locked(folder, path.name):
                    try:
                        found = _etag(folder.status(path.name, follow=True))
                    except FileNotFoundError:
                        found = None
                    if found != etag:
                        what = "removed" if found is None else "replaced"
                        raise ChangedError(f"the file was {what} meanwhile", file=str(path))
                    _store(folder, key, [data], Folder.rename)
            except (FileNotFoundError, NotADirectoryError):
                raise ChangedError("the file was removed meanwhile", file=str(path)) from None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        found = []
        with _errors(self._root):
            for folder, name in self._walk(prefix):
                if (folder + name).startswith(prefix) and not filenames.is_temporary(name):
                    try:
                        status = os.stat(os.path.join(self._root, folder, name))
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    found.append(Entry(folder + name, status.st_size, _etag(status), status.st_mtime))
        yield from sorted(found, key=lambda entry: entry.key)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _errors(path), suppress(FileNotFoundError), self._opened(key) as folder:
            folder.remove(path.name)
            sync(folder.handle)
            folder.remove_empty(keep=len(self._own))  # object storage has no empty folders

    def discard_unfinished(self, prefix: str = "", *, choose: Choose | None = None) -> None:
        with _errors(self._root), suppress(FileNotFoundError, NotADirectoryError), self._opened(prefix) as top:
            first = prefix[: prefix.rfind("/") + 1]
            for directory, below, names, handle in os.fwalk(".", dir_fd=top.handle, onerror=_unless_missing):
                base = _base(first, directory)
                _prune(below, base, prefix)
                some = [name for name in names if filenames.is_temporary(name)]
                for name in some:
                    key = base + filenames.target_of(name)
                    if (base + name[1:]).startswith(prefix) and _discard(handle, name, key, choose):
                        with suppress(FileNotFoundError), self._opened(key) as folder:
                            folder.remove_empty(keep=len(self._own))

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _opened(self, key: str) -> AbstractContextManager[Folder]:
        """Open the folder of an object. Raise OSError."""
        return opened(self._top, [*self._own, *key.split("/")[:-1]])

    @contextmanager
    def _made(self, key: str) -> Iterator[Folder]:
        """Open the folder of an object. Make it if necessary, and make the names in it durable. Raise OSError."""
        names = [*self._own, *key.split("/")[:-1]]
        settled = "/".join(names) in self._settled and os.path.isdir(self._top)
        if not settled:
            self._make_top()
        with opened(self._top) as folder:
            made = [folder.enter(name, make=True) for name in names]
            if not settled or any(made):
                if not settled:
                    self._sync_above()
                folder.sync()
                self._settled.add("/".join(names))
            yield folder

    def _make_top(self) -> None:
        for one in [*reversed(self._top.parents), self._top]:
            try:
                one.mkdir(exist_ok=True)
            except FileExistsError:  # unless others removed it between two steps of `mkdir`
                if one.exists():
                    raise

    def _sync_above(self) -> None:
        for one in reversed(self._top.parents):
            with suppress(PermissionError), opened(one) as folder:  # not readable: then it is not made by mdsx
                sync(folder.handle)

    def _walk(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield folder (as in keys) and name of every file that can have the prefix, including unfinished ones.

        A directory that cannot be read is an error, because its files would seem to be missing.
        """
        for directory, below, names in os.walk(self._root / prefix.rpartition("/")[0], onerror=_unless_missing):
            base = _base("", os.path.relpath(directory, self._root))
            _prune(below, base, prefix)
            for name in names:
                yield base, name


_Name = Callable[[Folder, str, str], object]
"""Renames a file in a folder."""


def _base(first: str, relative: str) -> str:
    """Return the folder `relative` to the folder `first`, as in keys."""
    relative = relative.removeprefix("./").replace(os.sep, "/")
    return first if relative == "." else f"{first}{relative}/"


def _prune(below: list[str], base: str, prefix: str) -> None:
    """Skip folders in `base` that cannot have keys with this prefix."""
    below[:] = [name for name in below if (base + name + "/").startswith(prefix[: len(base + name) + 1])]


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _open_file(path: str | os.PathLike[str]) -> io.FileIO:
    """Open the file at `path` for reading, following symbolic links. Raise MissingError for a device or a FIFO, on
    which a reader could wait forever."""
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise MissingError("not a file, but a FIFO or a device", file=str(path))


def _store(folder: Folder, key: str, pieces: Sequence[Buffer], name: _Name) -> None:
    """Write a temporary file, and give it the name of the object."""
    target = key.rpartition("/")[2]
    for _ in range(_TRIES):
        if _store_once(folder, target, filenames.temporary(target, secrets.token_hex(8)), pieces, name):
            sync(folder.handle)
            return
    message = "other processes lock or remove each file that is begun here"
    raise TransportError(message, file=str(folder.path / target), hint="find them (`lsof`), and end them")


def _store_once(folder: Folder, target: str, temporary: str, pieces: Sequence[Buffer], name: _Name) -> bool:
    """Return False, and store nothing, if a `_discard` found the file before it was locked."""
    try:  # also around `open`: Ctrl-C may come just after it
        with open(temporary, "xb", buffering=0, opener=folder.open) as file:
            if not _lock_now(folder, temporary, file):
                folder.remove(temporary)
                return False
            _write(file.fileno(), pieces)
            os.fsync(file.fileno())
            name(folder, temporary, target)
            return True
    except BaseException:
        with suppress(OSError):  # report the first failure
            folder.remove(temporary)
        raise


def _lock_now(folder: Folder, name: str, file: io.FileIO) -> bool:
    """Lock an open file. Return False if another process has locked it, or removed it before it was locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file.fileno()).st_ino == folder.status(name).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def _locked(folder: Folder, name: str) -> Iterator[None]:
    """Hold the lock for replacing the file `name`: a lock of another file beside it."""
    lock = filenames.lock(name)
    with _lock(folder, lock):
        try:
            yield
        finally:
            folder.remove(lock)


def _lock(folder: Folder, lock: str) -> io.FileIO:
    """Open and lock a file. Its last holder may have removed it, so check that it still has its name."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        file = open(lock, "ab", buffering=0, opener=folder.open)  # noqa: SIM115
        if _lock_now(folder, lock, file):
            return file
        file.close()
        if time.monotonic() > deadline:
            hint = "find the process that holds it (`lsof`), and end it"
            where = str(folder.path / lock)
            raise TransportError("another process holds the lock for too long", file=where, hint=hint)
        time.sleep(_PAUSE)


def _discard(handle: int, name: str, key: str, choose: Choose | None) -> bool:
    """Remove an unfinished file in the folder with this handle if its writer has died and `choose` returns True."""
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NFS locks only files open for writing
        with open(name, "rb", buffering=0, opener=lambda name, _: os.open(name, flags, dir_fd=handle)) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return False
            if choose is not None and not choose(Entry(key, status.st_size, _etag(status), status.st_mtime)):
                return False
            remove_at(handle, name)
            return True
    except (FileNotFoundError, BlockingIOError):  # it was removed, or its writer lives
        return False
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EACCES, errno.EPERM):
            return False  # a link, a socket, a folder, or a file of another user: not ours
        raise


def map_whole(path: Path) -> mmap.mmap:
    """Map the file at `path`; the mapping holds no descriptor. Raise ValueError if it is empty."""
    with _errors(path), _open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_holes(file.fileno(), 0, size, path)
        return map_file(file.fileno(), size)


def map_range(path: Path, start: int, stop: int) -> memoryview:
    """Map bytes [start, stop) of the file at `path`, which must have them. Raise TruncatedError."""
    with _errors(path), _open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if stop > size:
            raise TruncatedError("the file ends before the bytes asked for", file=str(path), found=size, expected=stop)
        if start == stop:
            return memoryview(b"")
        _check_holes(file.fileno(), start, stop, path)
        before = start % mmap.ALLOCATIONGRANULARITY
        mapped = map_file(file.fileno(), before + stop - start, offset=start - before)
        return memoryview(mapped)[before:]


def _check_holes(descriptor: int, start: int, stop: int, path: Path) -> None:
    """Raise CorruptError if bytes [start, stop) have far more holes than stored bytes."""
    if stop - start <= most_unpacked(0):
        return
    stored = stored_bytes(descriptor, start, stop)
    if stop - start > most_unpacked(stored):
        found = f"{stop - start:,} bytes, {stored:,} of them stored"
        hint = "if that is intended, copy it without holes (`cp --sparse=never`)"
        message = "the file is sparse"
        raise CorruptError(message, file=str(path), found=found, expected=f"at most {MOST_UNPACKED}", hint=hint)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def _read(descriptor: int, start: int, stop: int, *, at_once: int = _CHUNK) -> Iterator[bytes]:
    while start < stop and (chunk := os.pread(descriptor, min(at_once, stop - start), start)):
        yield chunk
        start += len(chunk)


def _read_into(file: io.FileIO, memory: memoryview) -> Iterator[memoryview]:
    file.seek(0)  # `_check_holes` moves the offset
    while len(memory) and (size := file.readinto(memory[:_CHUNK])):
        yield memory[:size]
        memory = memory[size:]


def _write(descriptor: int, pieces: Sequence[Buffer]) -> None:
    """Write pieces in small calls. For larger ones, Linux allocates huge pages: in virtual machines whose host had to
    provide the memory first, 64 MiB took 155 ms instead of 13 ms."""
    for piece in pieces:
        left = memoryview(piece).cast("B")
        while len(left):
            left = left[os.write(descriptor, left[:_CHUNK]) :]


def _link(folder: Folder, temporary: str, name: str) -> None:
    """Give a file its name, unless the name is in use."""
    path = str(folder.path / name)
    try:
        folder.link(temporary, name)
    except FileExistsError:
        raise ChangedError("the file exists already", file=path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with _locked(folder, name):
            with suppress(FileNotFoundError):
                folder.status(name)
                raise ChangedError("the file exists already", file=path) from None
            folder.rename(temporary, name)
    else:
        folder.remove(temporary)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except LinkError as error:
        message = "this is a symbolic link, and mdsx does not write or remove through links"
        hint = "replace it by a folder, or give the folder that it leads to"
        raise UsageError(message, file=str(error.filename), hint=hint) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError("not found", file=str(path)) from error
    except FileExistsError as error:
        raise UsageError("a file has the name of a folder", file=str(path), hint="write to another path") from error
    except PermissionError as error:
        raise ForbiddenError(f"not allowed: {error.strerror}", file=str(path), hint="check its permissions") from error
    except OSError as error:
        if (too_many := exhausted(error, str(path))) is not None:
            raise too_many from error
        if error.errno == errno.ENAMETOOLONG:
            hint = "give a shorter path: on most disks, a name has at most 255 bytes"
            raise UsageError("the path is too long", file=str(path), hint=hint) from error
        advice = _WAYS_OUT.get(error.errno or 0)
        raise TransportError(f"the disk failed: {error.strerror or error}", file=str(path), hint=advice) from error


_WAYS_OUT = {
    errno.ENOSPC: "free some space (`df -h` shows the disks), and resume",
    errno.EDQUOT: "free some space or raise the quota, and resume",
    errno.EFBIG: "raise the limit on file sizes (`ulimit -f unlimited`), and resume",
    errno.EROFS: "make it writable, and resume",
    errno.EIO: "look for errors of this disk in the system's log",
}
