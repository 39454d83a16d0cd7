"""What a power cut leaves: a process's file operations below a folder are recorded and replayed on a model of a disk.

    notes = record(job, top)            # a job in a process of its own; `die_at` kills it before that operation
    for disk in replay(notes):          # the disk after each operation
        assert not list(disk.flaws())   # what a power cut now could break
    disk.cut(rng, folder)               # one of the states that it could leave, as real files

The disk promises only what POSIX does: bytes of a file are safe once the file was synced; a name that was made,
replaced or removed is safe once its folder was synced. A change that is not safe may survive or not, independently
of earlier ones. Bytes whose sync failed never become safe: kernels drop them, and the next sync succeeds.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from mdsx.format import Index, parse_index
from tests.conftest import FSYNC
from tests.fork_server import CONTEXT
from tests.writer.jobs import Contents, path_of


class Note(NamedTuple):
    """One operation on the path, relative to the top."""

    what: str  # create, write, sync, lost (a sync that failed), replace, unlink, mkdir, rmdir; others change nothing
    path: str
    data: bytes = b""  # written
    to: str = ""  # replace


_CHANGE_NOTHING = ("open", "pread", "scandir", "failed")

Before = Callable[[int, str, str], None]
"""Called before each operation with its number, its name and its path; may raise OSError instead."""


class Recorder:
    """Records the operations of this process below `top`, one at a time, in a context."""

    def __init__(self, top: Path, before: Before, tell: Callable[[Note], object]) -> None:
        self._top = os.path.join(os.path.realpath(top), "")
        self._before = before
        self._tell = tell
        self._count = 0
        self._lock = threading.RLock()
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Recorder:
        self._wrap(os, "open", os.open, self._open_file)
        self._wrap(os, "write", os.write, self._write)
        self._wrap(os, "fsync", FSYNC, self._sync)
        for name in ("replace", "link"):
            self._wrap(os, name, getattr(os, name), partial(self._name, name))
        self._wrap(os, "pread", os.pread, self._read)
        for name in ("scandir", "unlink", "mkdir", "rmdir"):
            self._wrap(os, name, getattr(os, name), partial(self._path, name))
        return self

    def __exit__(self, *exception: object) -> None:
        for module, name, original in self._originals:
            setattr(module, name, original)

    def _wrap(self, module: Any, name: str, original: Any, wrapper: Callable[..., Any]) -> None:
        self._originals.append((module, name, getattr(module, name)))
        setattr(module, name, partial(wrapper, original))

    def _open_file(self, original: Any, path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
        with self._operation("create" if flags & os.O_EXCL else "open", path_of(path, options)) as note:
            file = original(path, flags, *arguments, **options)
            note()
            return file

    def _write(self, original: Any, descriptor: int, data: Any) -> int:
        def half() -> bytes:
            return bytes(data[: original(descriptor, data[: len(data) // 2])])

        with self._operation("write", _path_of(descriptor), half) as note:
            written: int = original(descriptor, data)
            note(data=bytes(data[:written]))
            return written

    def _sync(self, original: Any, descriptor: int) -> None:
        with self._operation("sync", _path_of(descriptor)) as note:
            original(descriptor)
            note()

    def _read(self, original: Any, descriptor: int, *arguments: int) -> bytes:
        with self._operation("pread", _path_of(descriptor)) as note:
            data: bytes = original(descriptor, *arguments)
            note()
            return data

    def _name(self, what: str, original: Any, source: Any, target: Any, **options: Any) -> None:
        with self._operation(what, path_of(source, options)) as note:
            original(source, target, **options)
            note(to=path_of(target, options)[len(self._top) :])

    def _path(self, what: str, original: Any, path: Any, *arguments: Any, **options: Any) -> Any:
        with self._operation(what, path_of(path, options)) as note:
            result = original(path, *arguments, **options)
            note()
            return result

    @contextmanager
    def _operation(self, what: str, path: str, half: Callable[[], bytes] = bytes) -> Iterator[Callable[..., object]]:
        """Return a function that records the operation after it. A write that must fail first does half of it."""
        if not os.path.join(path, "").startswith(self._top):
            yield lambda **details: None
            return
        relative = path[len(self._top) :]
        with self._lock:
            number, self._count = self._count, self._count + 1
            try:
                self._before(number, what, relative)
            except OSError:
                kind = what if what == "write" else "lost" if what == "sync" else "failed"
                self._tell(Note(kind, relative, half()))
                raise
            try:
                yield lambda **details: self._tell(Note(what, relative, **details))
            except OSError:
                self._tell(Note("failed", relative))
                raise


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


# --- a job in a process of its own


Job = Callable[[Path], object]
"""A function of a module, or a partial of one, that works below the given folder."""


def record(job: Job, top: Path, *, die_at: int | str | None = None) -> list[Note]:
    """Return what `job` did, one note for each operation. SIGKILL ends it before operation number `die_at`, if there
    are that many, or before the first on a path with that name in it."""
    log = top.parent / f"{top.name}.notes"
    process = CONTEXT.Process(target=_run, args=(job, top, log, die_at))
    process.start()
    process.join()
    assert process.exitcode in ((0,) if die_at is None else (0, -signal.SIGKILL))
    notes = []
    with log.open("rb") as file:
        while file.peek(1):
            notes.append(pickle.load(file))
    log.unlink()
    return notes


def _run(job: Job, top: Path, log: Path, die_at: int | str | None) -> None:
    def before(number: int, what: str, path: str) -> None:
        if number == die_at or (isinstance(die_at, str) and die_at in path):
            os.kill(os.getpid(), signal.SIGKILL)

    with log.open("wb", buffering=0) as file, Recorder(top, before, lambda note: file.write(pickle.dumps(note))):
        job(top)


# --- the disk


class File:
    def __init__(self) -> None:
        self.data = b""
        self.safe: bytes | None = None
        self.lost = False

    @property
    def whole(self) -> bool:
        return self.safe == self.data


class Folder:
    """`names` are what processes see; `safe` is what a power cut leaves, with any of `changes` or none."""

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.safe: dict[str, File | Folder] = {}
        self.changes: list[dict[str, File | Folder | None]] = []

    def change(self, change: dict[str, File | Folder | None]) -> None:
        self.changes.append(change)
        self.names = _changed(self.names, change)

    def sync(self) -> None:
        self.safe, self.changes = self.names, []

    def possible(self, name: str) -> list[File | Folder | None]:
        """Return what a power cut may leave under this name."""
        return [self.safe.get(name), *(change[name] for change in self.changes if name in change)]


class Disk:
    """A folder and everything below it. It begins empty and safe."""

    def __init__(self) -> None:
        self._top = Folder()

    def play(self, note: Note) -> None:
        if note.what in _CHANGE_NOTHING:
            return
        folder, name = self._parent(note.path)
        match note.what:
            case "create":
                assert name not in folder.names
                folder.change({name: File()})
            case "mkdir":
                folder.change({name: Folder()})
            case "replace":
                target, new = self._parent(note.to)
                assert target is folder
                folder.change({name: None, new: folder.names[name]})
            case "link":
                target, new = self._parent(note.to)
                assert target is folder
                folder.change({new: folder.names[name]})
            case "unlink" | "rmdir":
                folder.change({name: None})
            case "write":
                file = folder.names[name]
                assert isinstance(file, File)
                file.data += note.data
            case "lost":
                node = folder.names.get(name)
                if isinstance(node, File):
                    node.lost = True
            case "sync":
                node = folder.names[name] if name else self._top
                if isinstance(node, Folder):
                    node.sync()
                elif not node.lost:
                    node.safe = node.data

    def contents(self) -> Contents:
        """Return what processes see."""
        return dict(_contents(self._top, ""))

    def flaws(self) -> Iterator[str]:
        """Yield what a power cut now could leave wrong: an index of a dataset or a journal that is not whole, or that
        names a shard which is missing or different."""
        for path, file in self._indexes(self._top, ""):
            if not file.whole:
                yield f"{path} may be cut"
                continue
            index = _parse(file.data)
            dataset = path.removesuffix("index.json").partition("_mdsx/")[0]
            for shard in range(len(index.counts)):
                for found in self._possible(dataset + index.name(shard)):
                    if not isinstance(found, File):
                        yield f"{path} may be there, and {index.name(shard)} not"
                    elif not found.whole or _hash(found.data) != index.hash(shard):
                        yield f"{path} may be there, and {index.name(shard)} be another or cut"

    def keeps(self, path: str) -> bool:
        """Return whether any power cut leaves the file as processes see it."""
        folder, name = self._parent(path)
        found = self._possible(path)
        return all(isinstance(file, File) and file.whole and file is folder.names[name] for file in found)

    def cut(self, rng: random.Random, into: Path) -> None:
        """Create the files of one of the states that a power cut now could leave."""
        _restore(self._top, rng, rng.choice((0.0, 0.3, 0.7, 1.0)), into)

    def _parent(self, path: str) -> tuple[Folder, str]:
        *above, name = path.split("/")
        folder = self._top
        for part in above:
            node = folder.names[part]
            assert isinstance(node, Folder)
            folder = node
        return folder, name

    def _possible(self, path: str) -> list[File | Folder | None]:
        found: list[File | Folder | None] = [self._top]
        for name in path.split("/"):
            found = [node for at in found for node in (at.possible(name) if isinstance(at, Folder) else [None])]
        return found

    def _indexes(self, folder: Folder, path: str) -> Iterator[tuple[str, File]]:
        for name in {*folder.safe, *(name for change in folder.changes for name in change)}:
            for node in folder.possible(name):
                if isinstance(node, Folder):
                    yield from self._indexes(node, f"{path}{name}/")
                elif node and (name == "index.json" or name.startswith("journal.")):
                    yield path + name, node


def replay(notes: Sequence[Note]) -> Iterator[Disk]:
    """Yield the disk before the first operation and after each: the same object, changed."""
    disk = Disk()
    yield disk
    for note in notes:
        disk.play(note)
        yield disk


def _changed(names: dict[str, File | Folder], change: dict[str, File | Folder | None]) -> dict[str, File | Folder]:
    return {name: node for name, node in {**names, **change}.items() if node is not None}


def _contents(folder: Folder, path: str) -> Iterator[tuple[str, bytes | None]]:
    for name, node in folder.names.items():
        yield path + name, node.data if isinstance(node, File) else None
        if isinstance(node, Folder):
            yield from _contents(node, f"{path}{name}/")


def _restore(folder: Folder, rng: random.Random, luck: float, into: Path) -> None:
    names = folder.safe
    for change in folder.changes:
        if rng.random() < luck:
            names = _changed(names, change)
    into.mkdir()
    for name, node in names.items():
        if isinstance(node, Folder):
            _restore(node, rng, luck, into / name)
        else:
            (into / name).write_bytes(node.data if node.whole else _torn(node, rng))


def _torn(file: File, rng: random.Random) -> bytes:
    """Return what may remain of a file that was not synced: nothing, a part, zeros."""
    size = rng.randrange(len(file.data) + 1)
    return rng.choice((file.safe or b"", file.data[:size], bytes(size) + file.data[size:], bytes(len(file.data))))


@lru_cache(maxsize=1000)
def _parse(data: bytes) -> Index:
    return parse_index(data)


@lru_cache(maxsize=10_000)
def _hash(data: bytes) -> str:
    digest: str = xxhash.xxh3_128_hexdigest(data)
    return digest
