"""The cache's directory in the file system: only for its owner, and what happens if the file system refuses.

Rules:
- It is made in an empty directory, and marked: nothing of others is ever taken for the cache's.
- Only its owner may use what the cache makes in it, whatever the umask. It has no symbolic links, and follows none.
- If the disk is full, the directory is being removed, or is read-only, reading continues without the cache.
- If it cannot even be read, or is no directory, raise an error that names the owner and the way out.
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
from mdsx.storage.cache import filenames

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_OTHERWISE = {errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EISDIR}
_UNKNOWN_SIZE = 2**50
_OF_DISKS = "lost+found"  # at the top of a disk
_OWN = "give another directory: cache=, or $MDSX_CACHE"


def make_folder(path: Path) -> None:
    """Make `path` a folder if it is not one yet, and no symbolic link. Raise OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not is_folder(path):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path)) from None
    else:
        os.chmod(path, 0o700)  # the umask may have removed bits


def claim(directory: Path) -> None:
    """Mark `directory` as a cache, if it is empty, or if version 0.1.0, which made no mark, made all that is in it.

    Raise UsageError if it has something else in it, and OSError if it is not writable."""
    mark = directory / filenames.MARK
    if os.path.lexists(mark):
        return
    if (foreign := not_of_a_cache(directory)) is not None:
        raise no_cache(directory, foreign)
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def no_cache(directory: Path, foreign: str) -> MdsxError:
    """Return the error of a directory with something that no cache has."""
    hint = f"give an empty directory: cache=, or $MDSX_CACHE; if this is a cache of mdsx 0.1, move {foreign} elsewhere"
    return UsageError("the directory is neither empty nor a cache", file=str(directory), found=foreign, hint=hint)


def not_of_a_cache(directory: Path) -> str | None:
    """Return something in the directory that a cache does not have; None if it is marked as a cache, if it is empty, or
    if a cache has made all that is in it. Hidden files count as nothing: the cache has none."""
    found = [entry for entry in entries(directory) if not entry.name.startswith(".") and entry.name != _OF_DISKS]
    names = {entry.name for entry in found}
    if not names or filenames.MARK in names:
        return None
    strange = next((entry.name for entry in found if not _is_of_cache(entry)), None)
    return strange or (None if filenames.LOCK in names else min(names))


def _is_of_cache(entry: os.DirEntry[str]) -> bool:
    """Return whether something in a cache's directory is the cache's, also all that is in it if it is a folder."""
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
    except FileNotFoundError:  # removed meanwhile, as caches remove it
        return True
    return stat.S_ISREG(status.st_mode) and not status.st_size


def is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def entries(directory: str | Path) -> list[os.DirEntry[str]]:
    """Return what is in a directory; nothing if it was removed, or is not ours."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, PermissionError):
        return []


def disk_size(directory: Path) -> int:
    """Bytes of the disk on which `directory` is, or would be; very many if the file system is no disk."""
    return shutil.disk_usage(_nearest(directory)).total or _UNKNOWN_SIZE


def bypass(directory: Path, error: OSError, *, costs: bool = True, limited: bool = True) -> None:
    """Return if reading can continue without the cache, with one warning if that `costs`; else raise the problem.

    A cache that cannot be made is an error only if it is `limited`: the user gave it a limit, so expects one.
    """
    impossible = isinstance(error, FileNotFoundError) and not _can_be_made(directory)
    if isinstance(error, FileNotFoundError) and not impossible:  # it was removed; make it again
        return
    if error.errno in _FULL:
        why = "the disk is full, or a quota on it"
    elif error.errno in _REFUSED and _unreadable(directory) is None and directory.is_dir():
        why = f"it may only be read ({error.strerror}), and does not hold all shards"
    elif (impossible or error.errno in _REFUSED) and not limited and not os.path.lexists(directory):
        why = f"it cannot be made ({error.strerror})"
    else:
        raise failure(directory, error) from error
    text = (
        f"{directory}: the cache takes no more shards: {why}; what is not there is read by range, in each epoch again"
    )
    if costs:
        free = "free some space (`df -h` shows the disks, `mdsx cache` what the cache holds), or "
        warn(f"{text}; {free if error.errno in _FULL else ''}{_OWN}", seen_by="node")


def failure(directory: Path, error: OSError) -> MdsxError:
    """Return the error of mdsx for an error of the file system that prevents work on the cache."""
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
        above = _nearest(directory)
        if above == directory:
            owner = _owner(directory)
            return ForbiddenError(f"this cache may only be read ({error.strerror}); it belongs to {owner}", file=file)
        return ForbiddenError(
            f"the cache cannot be made: {above} belongs to {_owner(above)} ({error.strerror})", file=file, hint=_OWN
        )
    if isinstance(error, FileNotFoundError):
        above = _nearest(directory)
        return ForbiddenError(f"the cache cannot be made in {above} ({error.strerror})", file=file, hint=_OWN)
    if error.errno in _OTHERWISE:
        found = Path(os.fsdecode(error.filename)) if error.filename else directory
        if directory not in found.parents:  # never advise to remove a file that is not the cache's
            file = next(str(path) for path in (directory, *directory.parents) if os.path.lexists(path))
            return UsageError("the cache cannot be here: a file is in the way", file=file, hint=_OWN)
        kind = "a symbolic link" if found.is_symlink() else "something else than the cache made"
        return UsageError(f"where the cache should be, there is {kind}", file=str(found), hint=f"remove it, or {_OWN}")
    if isinstance(error, TimeoutError):
        return TransportError(str(error.strerror), file=file, hint="look for a process that uses the cache and hangs")
    return TransportError(f"the cache failed: {error.strerror or error}", file=file, hint=_OWN)


def _nearest(directory: Path) -> Path:
    """Return the directory, or the nearest of those above it that exists."""
    return next(path for path in (directory, *directory.parents) if path.exists())


def _can_be_made(directory: Path) -> bool:
    """Try to make the directory; return False if the file system refuses any, like `/proc`."""
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
