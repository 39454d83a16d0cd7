"""Local disk: files of dead writers, and errors of the disk."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.base.system import network_file_system
from mdsx.storage import Entry, open_beside, open_storage
from mdsx.storage.cache import CacheDirectory
from mdsx.storage.local import LocalStorage
from tests.forks import as_another_user, forked

DYING = """
import os, signal, sys
from mdsx.storage import open_storage
def replace(source, target, **folders):  # after all bytes were written, before the file has its name
    print("there", flush=True)
    signal.pause()
os.replace = replace
open_storage(sys.argv[1]).put("shard", b"x" * 100_000)
"""


def test_only_dead_writers_temporary_files_are_removed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "place")
    storage.put("other", b"1")
    writer = subprocess.Popen(
        [sys.executable, "-c", DYING, str(tmp_path / "place")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "there\n"
    assert [entry.key for entry in storage.list()] == ["other"]
    storage.discard_unfinished()
    assert len(os.listdir(tmp_path / "place")) == 2
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    storage.discard_unfinished()
    assert os.listdir(tmp_path / "place") == ["other"]


@pytest.mark.parametrize("holds", [False, True])
def test_a_discard_just_after_a_file_is_made_disturbs_no_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    """It may remove the file before the writer locks it, or hold the lock while it looks."""
    storage, lock, begun = open_storage(tmp_path), fcntl.flock, list[str]()

    def flock(file: Any, operation: int) -> None:
        if not begun and (
            temporary := [name for name in os.listdir(tmp_path) if re.search(r"[.][0-9a-f]{16}[.]", name)]
        ):
            begun.extend(temporary)
            if holds:
                raise BlockingIOError
            open_storage(tmp_path).discard_unfinished()
        lock(file, operation)

    storage.put("old", b"1")
    etag = storage.get("old").etag
    monkeypatch.setattr(fcntl, "flock", flock)
    stores: list[Callable[[], None]] = [
        lambda: storage.put("new", b"2"),
        lambda: storage.create("newer", b"2"),
        lambda: storage.replace("old", b"2", etag=etag),
    ]
    for store in stores:
        begun.clear()
        store()
        assert begun
    assert sorted(os.listdir(tmp_path)) == ["new", "newer", "old"]
    assert {storage.get(key).data for key in ("new", "newer", "old")} == {b"2"}


def test_an_interrupt_just_after_a_file_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        open(*args, **options).close()
        raise KeyboardInterrupt

    monkeypatch.setattr("mdsx.storage.local.open", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        open_storage(tmp_path).put("key", b"1")
    assert os.listdir(tmp_path) == []


def test_a_put_is_atomic(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    versions = [bytes([number]) * 500_000 for number in range(20)]
    storage.put("key", versions[0])
    wrong: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            data = storage.get("key").data
            if data not in versions:
                wrong.append(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for version in versions:
        storage.put("key", version)
    over.set()
    reader.join()
    assert not wrong


FULL = """
import resource, signal, sys
import mdsx
from mdsx.storage import open_storage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    open_storage(sys.argv[1]).put("big", b"x" * 5000)
except mdsx.TransportError as error:
    print(error)
"""


def test_a_full_disk_raises_and_leaves_no_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert str(tmp_path / "big") in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_a_directory_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(mdsx.UsageError, match="a file has the name of a folder; write to another path"):
        open_storage(tmp_path / "file").put("key", b"1")


def test_too_long_a_path_raises(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / ("x" * 256))
    for act in (lambda: storage.put("key", b"1"), lambda: storage.get("key"), lambda: [*storage.list()]):
        with pytest.raises(mdsx.UsageError, match=r"xx.*: the path is too long; give a shorter path"):
            act()


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a/", "/a"),
        ("file:///a?b=c#d", "/a?b=c#d"),
        ("/a/b/", "/a/b"),
        ("/a/../b", "/b"),
    ],
)
def test_urls_of_local_places(url: str, root: str) -> None:
    assert open_storage(url).url == root
    assert open_storage(Path(root)).url == root


def test_a_home_directory_is_expanded_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert open_storage("~/data").url == "/home/me/data"
    assert open_storage("./~").url == f"{os.getcwd()}/~"
    with pytest.raises(mdsx.UsageError, match=r"~nobody-here is not a user's home.*\./~nobody-here"):
        open_storage("~nobody-here/data")


@pytest.mark.parametrize("place", [mdsx.Dataset, mdsx.verify, CacheDirectory])
def test_a_relative_path_in_a_working_directory_that_was_removed_raises(tmp_path: Path, place: Any) -> None:
    def work() -> None:
        os.chdir(tmp_path)
        tmp_path.rmdir()
        place("data")

    with pytest.raises(mdsx.MissingError, match=r"data: the working directory does not exist.*give an absolute path"):
        forked(work)


def test_a_path_that_no_file_can_have_raises(tmp_path: Path) -> None:
    for path in ("\ud800", tmp_path / "\ud800"):
        with pytest.raises(mdsx.UsageError, match=r"not text that a file's name can have .*ud800"):
            mdsx.Dataset(path)
    (tmp_path / os.fsdecode(b"\xff")).mkdir()  # its name is no text either, but a file's
    with pytest.raises(mdsx.MissingError, match="no dataset is here"):
        mdsx.Dataset(tmp_path / os.fsdecode(b"\xff"))


@pytest.mark.parametrize("url", ["s3://b/k/a\nb", "s3://b/k/a\tb", "s3://b/a\r/b", "s3://b/\x85", "file:///a\nb"])
def test_control_characters_in_a_url_are_refused(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="may not have control characters"):
        open_storage(url)


@pytest.mark.parametrize("url", [Path("s3://bucket/data"), Path("file:///data"), "s3:/bucket/data"])
def test_a_url_without_a_slash_raises_with_advice(url: str | Path) -> None:
    with pytest.raises(
        mdsx.UsageError, match="give the URL as a str" if isinstance(url, Path) else "write two slashes"
    ):
        open_storage(url)


@pytest.mark.parametrize(
    "url", ["gopher://x/y", "https:///path", "", "file://elsewhere/x", "file://", "s3://", "s3://bucket/a?b=c"]
)
def test_values_that_are_no_url_raise(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"path|file://|s3://"):
        open_storage(url)


@pytest.mark.parametrize("other", [5, b"data"])
def test_a_place_beside_that_is_no_url_raises(other: Any, tmp_path: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="not a URL"):
        open_beside(tmp_path, other, None)


def test_an_unknown_scheme_raises_naming_the_known() -> None:
    with pytest.raises(mdsx.UsageError, match=r"a path, file://, s3://") as caught:
        open_storage("gopher://bucket/x")
    assert "gopher://" in str(caught.value)


def test_this_disk_is_not_on_a_network(tmp_path: Path) -> None:
    assert not network_file_system(tmp_path / "absent")
    assert not network_file_system("/proc")
    assert not as_another_user(lambda: network_file_system("/proc/1/cwd/x"))  # a link that it may not read


def test_puts_beside_deletes_of_the_last_file_of_a_folder_succeed(tmp_path: Path) -> None:
    def put_and_delete(number: int) -> None:
        storage = LocalStorage(tmp_path)
        for _ in range(50):
            storage.put(f"folder/{number}", b"x")
            storage.delete(f"folder/{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(put_and_delete, range(4)))


def test_unfinished_files_are_discarded_by_choice(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in (".one.00.mdsx-tmp", "folder/.two.00.mdsx-tmp"):
        (tmp_path / name).write_bytes(b"half")
    seen = []

    def choose(entry: Entry) -> bool:
        seen.append((entry.key, entry.size, abs(entry.modified - time.time()) < 600))
        return entry.key == "folder/two"

    LocalStorage(tmp_path).discard_unfinished(choose=choose)
    assert sorted(seen) == [("folder/two", 4, True), ("one", 4, True)]
    assert [path.name for path in tmp_path.rglob("*")] == [".one.00.mdsx-tmp"]


def test_a_file_that_is_searched_for_holes_is_downloaded_into_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdsx.base.decompress._ROOM", 1000)  # larger files are searched
    data, memory, chunks = bytes(range(256)) * 20, bytearray(2**13), list[bytes]()
    storage = LocalStorage(tmp_path)
    storage.put("key", data)
    storage.download("key", chunks.append, size=len(data), room=lambda size: memoryview(memory)[:size])
    assert b"".join(chunks) == data
