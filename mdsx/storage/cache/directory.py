"""The cache's directory in the file system: private to its owner; errors of the file system.

Rules:
- A cache is made only in an empty directory, and marked, so that files of others are never taken for the cache's.
- Only its owner may use the cache's files, whatever the umask. The cache has no symbolic links, and follows none.
- If the disk is full, or the directory is removed or read-only, reading continues without the cache.
- If the cache cannot even be read, or is not a directory, raise an error that names the owner and the way out.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from pathlib import Path

from mdsx.base.process import exhausted
from mdsx.base.warn import warn
from mdsx.errors import ForbiddenError, MdsxError, TransportError, UsageError
from mdsx.storage import absolute, expanded
from mdsx.storage.cache import filenames

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_OTHERWISE = {errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EISDIR}
_UNKNOWN_SIZE = 2**50
_OF_DISKS = "lost+found"  # at the top of a disk
_OWN = "give another directory: cache=, or $MDSX_CACHE"


def directory_of(given: str | os.PathLike[str] | None) -> Path:
    """Return the path of the cache that a user names; None means `$MDSX_CACHE`, or else `~/.cache/mdsx`."""
    if given is None:
        given = os.environ.get("MDSX_CACHE") or os.path.join("~", ".cache", "mdsx")
    return absolute(expanded(os.fspath(given)))


def make_folder(path: Path) -> None:
    """Make the folder `path`, unless it exists. Raise OSError, also if it is a symbolic link."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not is_folder(path):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path)) from None
    else:
        os.chmod(path, 0o700)  # the umask may have removed bits


def claim(directory: Path) -> None:
    """Mark `directory` as a cache if it is empty, or if all its files are from version 0.1.0, which made no mark.

    Raise UsageError if it has other files, and OSError if it is not writable."""
    mark = directory / filenames.MARK
    if os.path.lexists(mark):
        return
    if (foreign := not_of_a_cache(directory)) is not None:
        raise no_cache(directory, foreign)
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def no_cache(directory: Path, foreign: str) -> MdsxError:
    """Return the error for a directory with a file that is not a cache's."""
    hint = f"give an empty directory: cache=, or $MDSX_CACHE; if this is a cache of mdsx 0.1, move {foreign} elsewhere"
    return UsageError("the directory is neither empty nor a cache", file=str(directory), found=foreign, hint=hint)


def not_of_a_cache(directory: Path) -> str | None:
    """Return the name of a file in the directory that is not a cache's. Return None if the directory is marked as a
    cache, is empty, or has only files of a cache. Hidden files are ignored, as a cache has none."""
    found = [entry for entry in entries(directory) if not entry.name.startswith(".") and entry.name != _OF_DISKS]
    names = {entry.name for entry in found}
    if not names or filenames.MARK in names:
        return None
    strange = next((entry.name for entry in found if not _is_of_cache(entry)), None)
    return strange or (None if filenames.LOCK in names else min(names))


def _is_of_cache(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a cache's directory, with all its content if it is a folder, is the cache's."""
    if not entry.is_dir(follow_symlinks=False):
        books = entry.name == filenames.LOCK or filenames.parse_tally(entry.name) is not None
        return books and _is_empty(entry)
    inside = entries(entry.path)
    if entry.name == filenames.LIMITS:
        return all(filenames.limit_of(each.name) is not None and _is_empty(each) for each in inside)
    if entry.name == filenames.NEEDS:
        return all(filenames.fingerprint_of_needs(each.name) is not None for each in inside)
    return filenames.is_folder(entry.name) and all(
        filenames.is_content(each.name) or (filenames.url_of(each.name) is not None and _is_empty(each))
        for each in inside
    )


def _is_empty(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # removed meanwhile, as caches do
        return True
    return stat.S_ISREG(status.st_mode) and not status.st_size


def is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def entries(directory: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a directory; none if it was removed or may not be read."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, PermissionError):
        return []


def disk_size(directory: Path) -> int:
    """Return the bytes of the disk of `directory`, which need not exist; a huge number if the file system is no
    disk."""
    return shutil.disk_usage(nearest(directory)).total or _UNKNOWN_SIZE


def bypass(directory: Path, error: OSError, *, limited: bool, costs: bool = True) -> None:
    """Return if reading can continue without the cache, with one warning if that `costs` time; otherwise raise an
    error.

    A cache that cannot be created is an error only if it is `limited`: a user who gives a limit expects a cache.
    """
    impossible = isinstance(error, FileNotFoundError) and not _can_be_made(directory)
    if isinstance(error, FileNotFoundError) and not impossible:  # it was removed, and is made again
        return
    if error.errno == errno.ESTALE:
        why = "its directory is being removed, or cannot be made again"
    elif error.errno in _FULL:
        why = "the disk is full, or a quota is reached"
    elif error.errno in _REFUSED and _unreadable(directory) is None and directory.is_dir():
        why = f"it is read-only ({error.strerror}), and does not hold all shards"
    elif (impossible or error.errno in _REFUSED) and not limited and not os.path.lexists(directory):
        why = f"it cannot be made ({error.strerror})"
    else:
        raise failure(directory, error) from error
    text = f"{directory}: the cache takes no more shards: {why}; all others are read by range, in every epoch"
    if costs:
        free = "free some space (`df -h` lists the disks, `mdsx cache` the cache's content), or "
        warn(f"{text}; {free if error.errno in _FULL else ''}{_OWN}", seen_by="node")


def failure(directory: Path, error: OSError) -> MdsxError:
    """Return mdsx's error for a file system error that prevents using the cache."""
    file = str(directory)
    if (too_many := exhausted(error, file)) is not None:
        return too_many
    if error.errno in _REFUSED:
        if (path := _unreadable(directory)) is not None:
            return ForbiddenError(
                f"the cache belongs to {_owner(path)}, and {_name(os.geteuid())} may not read it",
                file=file,
                hint=f"{_OWN}; each user needs one, unless its owner lets others read it (chmod -R a+rX)",
            )
        above = nearest(directory)
        if above == directory:
            owner = _owner(directory)
            return ForbiddenError(f"the cache is read-only ({error.strerror}); it belongs to {owner}", file=file)
        return ForbiddenError(
            f"the cache cannot be made: {above} belongs to {_owner(above)} ({error.strerror})", file=file, hint=_OWN
        )
    if isinstance(error, FileNotFoundError):
        above = nearest(directory)
        return ForbiddenError(f"the cache cannot be made in {above} ({error.strerror})", file=file, hint=_OWN)
    if error.errno == errno.ENAMETOOLONG:
        return UsageError("the cache's path is too long", file=file, hint=_OWN)
    if error.errno in _OTHERWISE:
        found = Path(os.fsdecode(error.filename)) if error.filename else directory
        if directory not in found.parents:  # never advise to remove a file that is not the cache's
            file = next(str(path) for path in (directory, *directory.parents) if os.path.lexists(path))
            return UsageError("the cache cannot be here: a file is in the way", file=file, hint=_OWN)
        kind = "a symbolic link" if found.is_symlink() else "a file that the cache did not make"
        return UsageError(f"there is {kind} in place of the cache", file=str(found), hint=f"remove it, or {_OWN}")
    if isinstance(error, TimeoutError):
        return TransportError(str(error.strerror), file=file, hint="find the process that uses the cache and hangs")
    return TransportError(f"the cache failed: {error.strerror or error}", file=file, hint=_OWN)


def nearest(directory: Path) -> Path:
    """Return the directory, or its nearest existing parent."""
    return next(path for path in (directory, *directory.parents) if os.path.exists(path))


def _can_be_made(directory: Path) -> bool:
    """Try to make the directory. Return False if the file system allows none there, like `/proc`."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        make_folder(directory)
    except FileNotFoundError:
        return False
    except OSError:  # the next use reports it
        return True
    return True


def _unreadable(directory: Path) -> Path | None:
    """Return the directory or its lock, if it exists but this process may not read it."""
    for path in (directory, directory / filenames.LOCK):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW * (path != directory)))
        except PermissionError:
            return path
        except OSError:
            continue
    return None


def _owner(path: Path) -> str:
    try:
        return _name(path.lstat().st_uid)
    except OSError:
        return "somebody else"


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
