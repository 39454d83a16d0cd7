"""Folders below a root, by handle. All writes of the local storage, and all removals, go through this module.

- The user gives the root. It may be a symbolic link, or be reached through links.
- Below the root, no link is followed. Each folder is opened by its name relative to its parent's handle, so swapping a
  folder for a link leads nowhere else.
- Files are created, replaced and removed themselves, never the target of a link of that name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LinkError(OSError):
    """mdsx would write or remove through a symbolic link. `filename`: the link."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(errno.ELOOP, "a symbolic link", os.fspath(path))


class Folder:
    """An open folder, and the folders between it and the root."""

    def __init__(self, root: Path) -> None:
        """Open `root`, following links. Raise OSError."""
        self.path = root
        self._handles = [os.open(root, _FOLDER)]
        self._names: list[str] = []

    @property
    def handle(self) -> int:
        return self._handles[-1]

    def enter(self, name: str, *, make: bool = False) -> bool:
        """Enter the folder `name` in this one. Return whether it was made. Raise LinkError or another OSError."""
        made = False
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.handle)
                made = True
        try:
            handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.handle)
        except OSError as error:
            self._refuse_link(name)
            if make and isinstance(error, NotADirectoryError):
                raise FileExistsError(errno.EEXIST, "not a folder", os.fspath(self.path / name)) from None
            raise
        self._handles.append(handle)
        self._names.append(name)
        self.path = self.path / name
        return made

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Open a file in this folder, and return its descriptor. Raise LinkError or another OSError."""
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.handle)
        except OSError:
            self._refuse_link(name)
            raise

    def status(self, name: str, *, follow: bool = False) -> os.stat_result:
        return os.stat(name, dir_fd=self.handle, follow_symlinks=follow)

    def rename(self, name: str, new: str) -> None:
        """Rename a file. The new name may be in use."""
        os.replace(name, new, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def link(self, name: str, new: str) -> None:
        """Give a file a second name. Raise FileExistsError if the name is in use."""
        os.link(name, new, src_dir_fd=self.handle, dst_dir_fd=self.handle, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself. Do nothing if it does not exist."""
        remove_at(self.handle, name)

    def remove_empty(self, *, keep: int = 0) -> None:
        """Remove this folder and those above it while they are empty, but never the root and the first `keep` below."""
        for place in range(len(self._names) - 1, keep - 1, -1):
            try:
                os.rmdir(self._names[place], dir_fd=self._handles[place])
            except OSError:
                return

    def sync(self) -> None:
        """Make the names in this folder durable, and those in the folders above it up to the root."""
        for handle in self._handles:
            sync(handle)

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())

    def _refuse_link(self, name: str) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(self.status(name).st_mode):
                raise LinkError(self.path / name) from None


@contextmanager
def opened(root: Path, names: Sequence[str] = ()) -> Iterator[Folder]:
    """Open the folder at the path `names` below `root`. Raise LinkError or another OSError."""
    folder = Folder(root)
    try:
        for name in names:
            folder.enter(name)
        yield folder
    finally:
        folder.close()


def remove_at(handle: int, name: str) -> None:
    """Remove a file from the folder with this handle. Do nothing if it does not exist."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=handle)


def sync(handle: int) -> None:
    """Make the names in a folder durable."""
    try:
        os.fsync(handle)
    except OSError as error:  # some network file systems cannot sync folders
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
