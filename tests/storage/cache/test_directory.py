"""The directory belongs to its owner only. Other cases: another owner, read-only, full, removed, or no directory."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mdsx
from mdsx.storage.cache import CacheDirectory, Verdict, clear, contents_of, filenames
from mdsx.storage.cache.directory import bypass, failure
from mdsx.storage.cache.files import Cached, Write, evict
from mdsx.storage.cache.ledger import Ledger
from tests.forks import ROOT, as_another_user, forked, let_through
from tests.storage.cache.test_cache import SIZE, content, fetch, fill_the_disk, key, tally, usage

LIMIT = 4 * SIZE


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The directory of a cache with shard 1, in a place that everybody may enter."""
    fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1)
    gc.collect()
    let_through(tmp_path)
    return tmp_path / "cache"


def modes(path: Path) -> set[int]:
    return {found.stat().st_mode & 0o777 for found in (path, *path.rglob("*"))}


def listing(path: Path) -> set[str]:
    return {str(found.relative_to(path)) for found in path.rglob("*") if found.name != "lock"}


# --- its owner


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277, 0o777])
def test_folders_are_0700_and_files_0600_under_any_umask(tmp_path: Path, umask: int) -> None:
    def work() -> set[int]:
        os.umask(umask)
        held = fetch(CacheDirectory(tmp_path / "new" / "cache", LIMIT), 1)
        assert bytes(memoryview(held)) == content(1)  # type: ignore[arg-type]
        (part,) = (tmp_path / "new" / "cache").rglob("*.mdsx")
        assert part.stat().st_mode & 0o777 == 0o600
        return {mode & 0o077 for mode in modes(tmp_path / "new" / "cache")}

    (tmp_path / "new").mkdir()
    assert forked(work) == {0}
    assert {(tmp_path / "new" / "cache").stat().st_mode & 0o777} == {0o700}
    assert all(
        path.stat().st_mode & 0o777 == 0o700 for path in (tmp_path / "new" / "cache").rglob("*") if path.is_dir()
    )
    assert (tmp_path / "new" / "cache" / "lock").stat().st_mode & 0o777 == 0o600


def test_another_users_cache_raises_with_advice(cache: Path) -> None:
    before = listing(cache)
    with pytest.raises(mdsx.MdsxError) as raised:
        as_another_user(lambda: CacheDirectory(cache, LIMIT).limit, denied=cache)
    error = raised.value
    assert type(error) is mdsx.ForbiddenError
    assert error.file == str(cache)
    assert f"(uid {os.geteuid()})" in str(error)
    assert "cache=" in str(error)
    assert "MDSX_CACHE" in str(error)
    assert listing(cache) == before
    assert bytes(memoryview(fetch(CacheDirectory(cache, LIMIT), 1))) == content(1)  # type: ignore[arg-type]


def test_another_users_cache_behind_a_link_names_its_owner(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(cache)
    with pytest.raises(mdsx.ForbiddenError, match=rf"belongs to .*\(uid {os.geteuid()}\)"):
        as_another_user(lambda: CacheDirectory(tmp_path / "link", LIMIT).limit, denied=cache)


def test_a_lock_that_leads_elsewhere_is_not_followed(cache: Path, tmp_path: Path) -> None:
    """It leads to another user's file. The cache itself may be read."""
    (tmp_path / "secret").touch(0o600)
    shutil.rmtree(cache / "limits")
    (cache / "lock").unlink()
    (cache / "lock").symlink_to(tmp_path / "secret")
    cache.chmod(0o755)
    assert as_another_user(lambda: CacheDirectory(cache, LIMIT).limit, denied=tmp_path / "secret") == LIMIT


def test_the_first_user_owns_a_shared_directory(tmp_path: Path) -> None:
    """A container's volume belongs to root and is open to all. Its first user owns the cache; a second one fails."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    let_through(tmp_path)

    def first() -> bytes:
        return bytes(memoryview(fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1)))  # type: ignore[arg-type]

    assert as_another_user(first) == content(1)
    folders = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    if ROOT:
        with pytest.raises(mdsx.ForbiddenError, match=r"belongs to .*\(uid 65534\)"):
            forked(lambda: CacheDirectory(tmp_path / "cache", LIMIT).limit, uid=1234)


def test_an_unwritable_place_raises_naming_its_owner(tmp_path: Path) -> None:
    let_through(tmp_path)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(mdsx.ForbiddenError, match="cannot be made") as raised:
            as_another_user(lambda: CacheDirectory(tmp_path / "deep" / "cache", LIMIT).limit)
        assert str(tmp_path) in str(raised.value)
        assert f"(uid {os.geteuid()})" in str(raised.value)
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("below", [".", "cache", "below/it"])
def test_a_file_in_place_of_the_cache_raises(tmp_path: Path, below: str) -> None:
    (tmp_path / "cache").write_text("precious")
    with pytest.raises(mdsx.UsageError, match=str(tmp_path / "cache")):
        _ = CacheDirectory(tmp_path / "cache" / below if below != "." else tmp_path / "cache", LIMIT).limit
    assert (tmp_path / "cache").read_text() == "precious"


def test_no_advice_removes_a_foreign_file() -> None:
    with pytest.raises(mdsx.UsageError, match=r"^/etc/passwd: the cache cannot be here: a file is in") as raised:
        _ = CacheDirectory(Path("/etc/passwd/c"), LIMIT).limit
    assert "remove" not in str(raised.value)


# --- files of others in it


@pytest.mark.parametrize("name", ["limits", "lock", key(1).fingerprint])
def test_a_symbolic_link_is_named_and_not_followed(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    for precious in ("1000", "12345"):  # named like limits, which are removed if nobody holds them
        (victim / precious).write_text("precious")
    marked(tmp_path / "cache")
    (tmp_path / "cache" / name).symlink_to(victim / "new" if name == "lock" else victim)
    with pytest.raises(mdsx.UsageError, match=f"{name}.*a symbolic link"):
        fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1)
    assert listing(victim) == {"1000", "12345"}


@pytest.mark.parametrize("suffix", [".mdsx", ".mdsx.part"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_pipe_named_as_a_shard_is_removed(tmp_path: Path, kind: str, suffix: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"x" * SIZE)
    path = tmp_path / "cache" / key(1).fingerprint / f"{key(1).raw_hash}{suffix}"
    marked(tmp_path / "cache")
    path.parent.mkdir(parents=True)
    path.symlink_to(victim) if kind == "link" else os.mkfifo(path)
    found = forked(lambda: bytes(memoryview(fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1))))  # type: ignore[arg-type]
    assert found == content(1)
    assert victim.read_bytes() == b"x" * SIZE
    assert not path.is_symlink()
    assert not path.is_fifo()


# --- read-only


def take_rights(cache: Path) -> None:
    for path in (*cache.rglob("*"), cache):
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.fixture
def read_only(cache: Path) -> Iterator[Path]:
    take_rights(cache)
    yield cache
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def mounted_read_only(cache: Path) -> Iterator[Path]:
    """Make it read-only, for root too. If nothing can be mounted, only by its modes."""
    mounted = ROOT and all(
        subprocess.run(["mount", *options, str(cache)], capture_output=True, check=False).returncode == 0
        for options in (["--bind", str(cache)], ["-o", "remount,ro,bind"])
    )
    if not mounted:
        take_rights(cache)
    yield cache
    if mounted:
        subprocess.run(["umount", "-l", str(cache)], check=True)
    else:
        for path in (cache, *cache.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def read_all(cache: Path, limit: int | None = LIMIT) -> tuple[int, bytes, bool, list[str]]:
    """Return the limit, shard 1 as fetched, whether shard 2 had room, and the warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        reader = CacheDirectory(cache, limit)
        bound = reader.limit
        found = bytes(memoryview(fetch(reader, 1)))  # type: ignore[arg-type]
        assert not warned  # it seems complete
        room = [fetch(reader, 2) is not Verdict.NO_ROOM for _ in range(3)]
    return bound, found, any(room), [str(warning.message) for warning in warned]


@pytest.mark.parametrize("way", ["read_only", "mounted_read_only"])
@pytest.mark.parametrize("limit", [LIMIT, None])
def test_a_read_only_cache_is_read_with_one_warning(
    way: str, limit: int | None, request: pytest.FixtureRequest
) -> None:
    cache: Path = request.getfixturevalue(way)
    before = listing(cache)
    run: Callable[[Callable[[], tuple[int, bytes, bool, list[str]]]], tuple[int, bytes, bool, list[str]]]
    run = as_another_user if way == "read_only" else forked
    bound, found, room, warned = run(lambda: read_all(cache, limit))
    assert bound == LIMIT if limit else bound > LIMIT
    assert found == content(1)
    assert not room
    assert len(warned) == 1
    assert str(cache) in warned[0]
    assert "read-only" in warned[0]
    assert listing(cache) == before


# --- full


def test_a_full_disk_warns_once_and_leaves_nothing(tmp_path: Path) -> None:
    def work() -> tuple[bool, list[str], set[str]]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, SIZE // 2))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            cache = CacheDirectory(tmp_path / "cache", LIMIT)
            room = [fetch(cache, number) is not Verdict.NO_ROOM for number in range(5)]
        return any(room), [str(warning.message) for warning in warned], listing(tmp_path / "cache")

    room, warned, left = forked(work)
    assert not room
    assert len(warned) == 1
    assert "the disk is full" in warned[0]
    assert not [name for name in left if ".mdsx" in name]
    assert not isinstance(fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1), Verdict)


@pytest.mark.parametrize("size", ["size=16k", "size=1m,nr_inodes=8"])
def test_a_small_disk_holds_as_much_as_fits(tmp_path: Path, size: str) -> None:
    """Without blocks, and without inodes. The test above replaces it on systems without mounts."""
    mount = ["mount", "-t", "tmpfs", "-o", size, "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        cache = CacheDirectory(tmp_path / "cache", 100 * SIZE)
        with pytest.warns(UserWarning, match="the disk is full"):
            found = [fetch(cache, number) for number in range(9)]
        good = [number for number, shard in enumerate(found) if not isinstance(shard, Verdict)]
        assert 0 < len(good) < 9
        for number in good:
            assert bytes(memoryview(found[number])) == content(number)  # type: ignore[arg-type]
        assert len([name for name in listing(tmp_path / "cache") if ".mdsx" in name]) == len(good)  # all of them whole
        del found
        gc.collect()
        if "inodes" not in size:  # without an inode not even a smaller limit can be stored
            assert not isinstance(
                fetch(CacheDirectory(tmp_path / "cache", len(good) * SIZE), 20), Verdict
            )  # room is made again
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_disk_that_fills_keeps_no_partial_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that does not reserve blocks. The error does not blame storage, and nothing is retried."""
    cache, asked = CacheDirectory(tmp_path / "cache", LIMIT), []

    def fill(write: Write) -> None:
        asked.append(1)
        try:
            write(content(1))
        except OSError:
            pytest.fail("the caller would take this for a failure of storage")

    fill_the_disk(monkeypatch)
    with pytest.warns(UserWarning, match="the disk is full"):
        assert cache.fetch(key(1), fill) is Verdict.NO_ROOM
    monkeypatch.undo()
    assert asked == [1]
    assert usage(cache) == 0
    assert not isinstance(fetch(cache, 1), Verdict)


@pytest.fixture
def compressed(tmp_path: Path) -> str:
    """A dataset that is read through a cache."""
    with mdsx.Writer(tmp_path / "data", {"id": "int64"}, shard_size=2000, compression="zstd") as out:
        for number in range(1000):
            out.write({"id": number})
    let_through(tmp_path)
    return str(tmp_path / "data")


def read_around(url: str, cache: Path) -> list[str]:
    """Return the warnings of reading all samples without a given limit."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            data = mdsx.Dataset(url, cache=cache)
            assert [sample["id"] for sample in data] == list(range(1000))
    return [str(warning.message) for warning in warned]


def test_a_default_limit_below_a_shard_warns(compressed: str, tmp_path: Path) -> None:
    """The disk is nearly full, or another job gave a small limit."""
    other = CacheDirectory(tmp_path / "cache", 500)
    assert other.limit == 500
    (warned,) = read_around(compressed, tmp_path / "cache")
    assert "500 B, below the largest shard" in warned
    assert str(tmp_path / "cache") in warned


@pytest.mark.parametrize("command", [False, True])
def test_a_full_disk_bypasses_the_cache(compressed: str, tmp_path: Path, command: bool) -> None:
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path / "disk")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        (tmp_path / "disk" / "others").write_bytes(bytes(64 * 1024))
        if command:
            cat = [sys.executable, "-m", "mdsx", "cat", compressed, "--start", "7", "--count", "1", "--json"]
            environment = {**os.environ, "MDSX_CACHE": str(tmp_path / "disk" / "cache")}
            assert subprocess.run(cat, capture_output=True, check=True, env=environment).stdout == b'{"id": 7}\n'
        else:
            assert len(read_around(compressed, tmp_path / "disk" / "cache")) == 1
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "disk")], check=True)


@pytest.mark.parametrize("mode", [0o555, 0])
def test_an_unusable_default_cache_is_bypassed(compressed: str, tmp_path: Path, mode: int) -> None:
    (tmp_path / "closed").mkdir()
    let_through(tmp_path)
    (tmp_path / "closed").chmod(mode)
    (warned,) = as_another_user(lambda: read_around(compressed, tmp_path / "closed" / "cache"))
    assert "it cannot be made" in warned


@pytest.mark.parametrize("below", ["c", "c/deep"])
def test_a_file_system_without_mkdir_bypasses_the_cache(compressed: str, below: str) -> None:
    (warned,) = read_around(compressed, Path("/proc") / below)
    assert "/proc/c" in warned
    assert "it cannot be made (No such file or directory)" in warned
    with pytest.raises(mdsx.ForbiddenError, match="cannot be made in /proc "):
        _ = CacheDirectory(Path("/proc") / below, LIMIT).limit
    with pytest.raises(mdsx.ForbiddenError, match="cannot be made in /proc "):
        CacheDirectory(Path("/proc") / below, LIMIT).discard(key(1))
    CacheDirectory(Path("/proc") / below).discard(key(1))


def test_a_removed_directory_is_made_again_with_its_parents(tmp_path: Path) -> None:
    gone = FileNotFoundError(2, "No such file or directory")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bypass(tmp_path / "deep" / "er" / "cache", gone, limited=True)
        assert (tmp_path / "deep" / "er" / "cache").is_dir()
        (tmp_path / "file").touch()
        bypass(tmp_path / "file" / "cache", gone, limited=True)  # the next use reports it


def test_an_error_without_a_place_names_the_directory(tmp_path: Path) -> None:
    error = failure(tmp_path / "cache", NotADirectoryError(20, "Not a directory"))
    assert isinstance(error, mdsx.UsageError)
    assert error.file == str(tmp_path)


# --- its content and place

JUNK = ["tally.", "tally.x", "tally.a.b.c", "tally.boot.\u00b2", "limits/x", "limits/\u00b2", "x.part"]


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
@pytest.mark.parametrize("name", [*JUNK, f"{key(1).fingerprint}/x", f"{key(1).fingerprint}/x.mdsx.part"])
def test_foreign_files_do_no_harm(tmp_path: Path, name: str, kind: str) -> None:
    path = marked(tmp_path / "cache") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir() if kind == "folder" else path.touch()
    for _ in range(2):
        cache = CacheDirectory(tmp_path / "cache", LIMIT)
        for number in range(9):
            assert bytes(memoryview(fetch(cache, number))) == content(number)  # type: ignore[arg-type]
        assert cache.limit == LIMIT


@pytest.mark.parametrize("suffix", [".mdsx", ".mdsx.part"])
def test_a_folder_in_place_of_a_shard_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "cache" / key(1).fingerprint / f"{key(1).raw_hash}{suffix}"
    marked(tmp_path / "cache")
    path.mkdir(parents=True)
    with pytest.raises(mdsx.UsageError, match="a file that the cache did not make"):
        fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1)


def test_the_default_cache_is_the_same_as_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MDSX_CACHE", raising=False)
    assert mdsx.Cache().same_as(mdsx.Cache("~/.cache/mdsx"))
    assert not mdsx.Cache().same_as(mdsx.Cache(tmp_path))


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CacheDirectory("~/mine").directory == tmp_path / "mine"
    monkeypatch.setenv("MDSX_CACHE", "~/its")
    assert CacheDirectory().directory == tmp_path / "its"
    monkeypatch.delenv("MDSX_CACHE")
    assert CacheDirectory().directory == tmp_path / ".cache" / "mdsx"
    assert CacheDirectory("./~").directory == Path.cwd() / "~"
    with pytest.raises(mdsx.UsageError, match="not a user's home"):
        CacheDirectory("~nobody-of-that-name/cache")


# --- whose directory it is


def marked(directory: Path) -> Path:
    """Return a directory that a cache has made."""
    directory.mkdir()
    (directory / filenames.MARK).touch()
    return directory


OTHERS = {
    "of no cache": {"notes.txt": "mine"},
    "like a tally": {"tally.march.31": "mine", "lock": ""},
    "like a limit": {"limits/2024": "mine", "lock": ""},
    "like an announcement": {"needs/" + "a" * 32 + "." + "b" * 16: "", "other": ""},
    "like a shard": {"c" * 32 + "/" + "d" * 32 + ".mdsx": "mine"},
    "like a lock": {"lock": "mine"},
    "like the origin of a shard": {"c" * 32 + "/from.me": "mine", "lock": ""},
    "like a dataset": {"c" * 32 + "/notes": "", "lock": ""},
    "like announcements": {"needs/notes": "", "lock": ""},
    "a shard and more": {"c" * 32 + "/" + "d" * 32 + ".mdsx": "mine", "c" * 32 + "/notes": "mine", "lock": ""},
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_a_directory_of_others_is_refused(tmp_path: Path, others: dict[str, str]) -> None:
    for name, text in others.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    uses: list[Callable[[], object]] = [
        lambda: fetch(CacheDirectory(tmp_path, LIMIT), 1),
        lambda: CacheDirectory(tmp_path, LIMIT).limit,
        lambda: clear(tmp_path),
        lambda: contents_of(tmp_path, 0.0),
    ]
    for use in uses:
        with pytest.raises(
            (mdsx.UsageError, mdsx.MissingError), match=r"neither empty nor a cache|there is no cache here"
        ):
            use()
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before


def test_a_cache_of_version_0_1_is_kept(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", LIMIT)
    fetch(cache, 1)
    (tmp_path / "cache" / "needs").mkdir()
    (tmp_path / "cache" / "needs" / filenames.needs("a" * 32, "b" * 16)).write_bytes(bytes(24))
    (tmp_path / "cache" / f"{key(1).fingerprint}/from.s3:%2F%2Fbucket").touch()
    (tmp_path / "cache" / filenames.MARK).unlink()
    (tmp_path / "cache" / "lost+found").mkdir()
    (tmp_path / "cache" / ".nfs0001").touch()
    again = CacheDirectory(tmp_path / "cache", LIMIT)
    assert again.limit == LIMIT
    assert again.open(key(1)) is not None
    assert (tmp_path / "cache" / filenames.MARK).exists()


@pytest.mark.parametrize("name", ["lock", "c" * 32])
def test_links_are_of_no_cache(tmp_path: Path, name: str) -> None:
    """What they lead to looks like a cache's."""
    (tmp_path / "mine").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ("d" * 32 + ".mdsx")).write_text("mine")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tally.boot.0").touch()
    (tmp_path / "cache" / "lock").touch()
    (tmp_path / "cache" / name).unlink(missing_ok=True)
    (tmp_path / "cache" / name).symlink_to(tmp_path / ("mine" if name == "lock" else "folder"))
    with pytest.raises(mdsx.UsageError, match=f"neither empty nor a cache.*{name}"):
        _ = CacheDirectory(tmp_path / "cache", LIMIT).limit


def test_a_tally_may_vanish_while_a_directory_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process is making a cache of version 0.1 its own."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "lock").touch()
    (cache / "tally.boot.0").touch()

    def with_removal(directory: Path) -> list[os.DirEntry[str]]:
        found = list(os.scandir(directory))
        (cache / "tally.boot.0").unlink(missing_ok=True)
        return found

    monkeypatch.setattr("mdsx.storage.cache.directory.entries", with_removal)
    assert CacheDirectory(cache, LIMIT).limit == LIMIT


def test_the_directory_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    cache = CacheDirectory(tmp_path / "cache", LIMIT)
    for number in range(9):
        assert bytes(memoryview(fetch(cache, number))) == content(number)  # type: ignore[arg-type]
    gc.collect()
    assert tally(cache) == usage(cache) == LIMIT
    assert clear(tmp_path / "cache").left.files == 0


def test_links_in_it_count_as_links(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", LIMIT)
    fetch(cache, 1)
    (tmp_path / "big").write_bytes(bytes(9 * SIZE))
    (tmp_path / "cache" / ("e" * 32)).symlink_to(cache.path(key(1)).parent)
    for number, target in ((2, tmp_path / "big"), (3, tmp_path)):
        cache.path(key(number)).symlink_to(target)
    sizes = sorted(file.size for file in Ledger(tmp_path / "cache").scan())
    assert sizes == sorted([SIZE, len(str(tmp_path / "big")), len(str(tmp_path))])


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_another_users_file_is_not_evicted(cache: Path, mode: int) -> None:
    (path,) = cache.rglob("*.mdsx")
    for above in (cache, path.parent):
        above.chmod(0o555)
    path.chmod(mode & (0o777 if ROOT else 0o444))
    assert not as_another_user(lambda: evict(path))
    assert path.exists()
    for above in (cache, path.parent):
        above.chmod(0o755)


def test_the_default_limit_is_four_fifths_of_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache's own files count as free. All processes with the default have the limit of the first one."""
    fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1)
    gc.collect()
    free = [50 * SIZE]
    disk = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk(100 * SIZE, 100 * SIZE - free[0], free[0]))
    cache = CacheDirectory(tmp_path / "cache")
    assert cache.limit == 41 * SIZE
    free[0] = 40 * SIZE
    assert CacheDirectory(tmp_path / "cache").limit == 41 * SIZE
    free[0] = 60 * SIZE
    given = CacheDirectory(tmp_path / "cache", 42 * SIZE)
    assert given.limit == 41 * SIZE
    del cache
    assert given.limit == 42 * SIZE
    cache = CacheDirectory(tmp_path / "cache")
    assert cache.limit == 42 * SIZE
    del given
    assert cache.limit == 49 * SIZE


def test_what_was_recorded_before_a_restart_of_the_machine_is_counted_again(tmp_path: Path) -> None:
    """Then files may have lost their content."""
    cache = CacheDirectory(tmp_path / "cache", LIMIT)
    fetch(cache, 1)
    (path,) = cache.directory.glob("tally.*")
    path.rename(path.with_name(filenames.tally("an-earlier-one", 0)))
    for number in range(9):
        fetch(cache, number)
        gc.collect()
        assert usage(cache) <= LIMIT
    assert tally(cache) == usage(cache)


def test_a_folder_swapped_for_a_link_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CacheDirectory(tmp_path / "cache", LIMIT)
    fetch(cache, 1)
    gc.collect()
    folder = cache.path(key(1)).parent
    (tmp_path / "home").mkdir()
    precious = tmp_path / "home" / cache.path(key(1)).name
    precious.write_text("mine")
    scan = Ledger.scan

    def swapped(ledger: Ledger) -> list[Cached]:
        found = scan(ledger)
        if not folder.is_symlink():
            folder.rename(tmp_path / "aside")
            folder.symlink_to(tmp_path / "home")
        return found

    monkeypatch.setattr(Ledger, "scan", swapped)
    clear(tmp_path / "cache")
    assert precious.read_text() == "mine"


# --- removed while in use


@pytest.mark.parametrize("what", [".", "limits", "lock", "tally", key(1).fingerprint])
@pytest.mark.parametrize("when", ["before", "within"])
def test_a_removed_part_of_the_cache_is_recreated(tmp_path: Path, what: str, when: str) -> None:
    cache = CacheDirectory(tmp_path / "cache", LIMIT)
    held = fetch(cache, 1)

    def remove() -> None:
        for path in tmp_path.glob("cache/tally*" if what == "tally" else f"cache/{what}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def fill(write: Write) -> None:
        write(content(2)[:10])
        if when == "within":
            remove()
        write(content(2)[10:])

    if when == "before":
        remove()
    found = cache.fetch(key(2), fill)
    gone = when == "within" and what in (".", key(1).fingerprint)
    assert found is Verdict.NO_ROOM if gone else bytes(memoryview(found)) == content(2)  # type: ignore[arg-type]
    assert bytes(memoryview(held)) == content(1)  # type: ignore[arg-type]
    for number in (3, 4):
        assert bytes(memoryview(fetch(cache, number))) == content(number)  # type: ignore[arg-type]
    assert cache.limit == LIMIT
    assert usage(cache) <= LIMIT


def test_a_directory_that_cannot_be_made_again_is_bypassed(compressed: str, tmp_path: Path) -> None:
    """It was removed, but is still mounted in a container; or it is the working directory, as here."""

    def work() -> list[str]:
        os.chdir(marked(tmp_path / "cache"))
        data = mdsx.Dataset(compressed, cache=Path("/proc/self/cwd"))
        assert next(iter(data))["id"] == 0
        shutil.rmtree(tmp_path / "cache")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert [sample["id"] for sample in data.select(800, 1000)] == list(range(800, 1000))
        return [str(warning.message) for warning in warned]

    (warned,) = forked(work)
    assert warned.startswith("/proc/self/cwd: ")
    assert "its directory is being removed, or cannot be made again" in warned


def test_a_job_goes_on_while_its_cache_is_being_removed(compressed: str, tmp_path: Path) -> None:
    """The mark and the lock are removed already, and the folder of a dataset is not yet."""
    data = mdsx.Dataset(compressed, cache=tmp_path / "cache")
    assert next(iter(data))["id"] == 0
    for name in (filenames.MARK, filenames.LOCK):
        (tmp_path / "cache" / name).unlink()
    with pytest.warns(UserWarning, match="its directory is being removed") as warned:
        assert [sample["id"] for sample in data.select(800, 1000)] == list(range(800, 1000))
    assert len(warned) == 1
    shutil.rmtree(tmp_path / "cache")
    assert [sample["id"] for sample in data.select(500, 700)] == list(range(500, 700))
    assert list((tmp_path / "cache").glob("*/*.mdsx"))


def test_a_lock_that_another_holds_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    ledger, locked = Ledger(tmp_path / "cache"), threading.Event()

    def hold() -> None:
        with ledger.locked():
            locked.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(60)
    assert not isinstance(fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1), Verdict)
    thread.join(60)


def test_a_stopped_process_with_the_lock_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.ledger._PATIENCE", 0.3)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with Ledger(tmp_path / "cache").locked():
            os.write(tell, b"x")
            signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(mdsx.TransportError, match=r"lock was not free for"):
            fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
    assert not isinstance(fetch(CacheDirectory(tmp_path / "cache", LIMIT), 1), Verdict)


def test_a_collected_cache_keeps_no_descriptor(tmp_path: Path) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(3):
        cache = CacheDirectory(tmp_path / "cache", LIMIT)
        held = fetch(cache, 1)
        assert cache.limit == LIMIT
        del cache, held
    assert descriptors() == before
