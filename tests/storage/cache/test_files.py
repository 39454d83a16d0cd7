"""Single files of the cache."""

from __future__ import annotations

import gc
import itertools
import os
from pathlib import Path

import pytest

from mdsx.storage.cache import CacheDirectory, Verdict
from mdsx.storage.cache.files import Hold, Write, evict, filled, held, map_held, remove, set_next_use
from tests.storage.cache.test_cache import SIZE, content, fetch


def test_a_missing_file_counts_as_evicted(tmp_path: Path) -> None:
    assert evict(tmp_path / "a")


def test_a_file_that_cannot_be_opened_releases_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.files._held", {})
    monkeypatch.setattr("mdsx.storage.cache.files._numbers", itertools.count())
    holds = [Hold(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(4)]
    with pytest.raises(FileNotFoundError):
        Hold(tmp_path / "missing", os.O_RDWR)
    gc.collect()
    assert held() == len(holds)


def test_a_file_that_nobody_released_is_released(tmp_path: Path) -> None:
    before = held()
    hold = Hold(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    assert held() == before + 1
    del hold
    gc.collect()
    assert held() == before


def test_an_owner_may_let_others_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o755)
    Hold(tmp_path / "a", os.O_RDWR | os.O_CREAT).release()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(NotADirectoryError):
        remove(tmp_path / "link" / "precious")
    assert (tmp_path / "folder" / "precious").exists()


@pytest.mark.parametrize("pieces", [[b"01234567", b"89abc"], [b"0123456789", b"abc"], [b"0123456789", b"ab", b"c"]])
def test_a_file_never_grows_while_it_is_filled(tmp_path: Path, pieces: list[bytes]) -> None:
    (tmp_path / "a").write_bytes(bytes(10))
    hold = Hold(tmp_path / "a", os.O_RDWR)

    def fill(write: Write) -> None:
        for piece in pieces:
            write(piece)

    assert filled(hold.descriptor, fill) == 13
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_missing_file_is_not_the_held_one(tmp_path: Path) -> None:
    hold = Hold(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    assert hold.leads_to(tmp_path / "a")
    remove(tmp_path / "a")
    assert not hold.leads_to(tmp_path / "a")


def test_only_the_held_file_is_mapped(tmp_path: Path) -> None:
    """Another one took its place."""
    for name in "ab":
        (tmp_path / name).write_text(name)
    hold = Hold(tmp_path / "a", os.O_RDONLY)
    mapped = map_held(hold, tmp_path / "a")
    assert mapped is not None
    assert mapped[:] == b"a"
    assert map_held(Hold(tmp_path / "a", os.O_RDONLY), tmp_path / "b") is None


def test_the_next_use_of_a_link_is_noted_in_the_link(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = os.stat(tmp_path / "file").st_atime
    set_next_use(tmp_path / "link", 5.0)
    assert os.stat(tmp_path / "file").st_atime == before
    assert os.lstat(tmp_path / "link").st_atime == 5.0


def test_a_write_that_the_system_cuts_short_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: pwrite(file, data[:70], start))
    mapped = fetch(CacheDirectory(tmp_path / "cache", 9 * SIZE), 1)
    assert not isinstance(mapped, Verdict)
    assert bytes(memoryview(mapped)) == content(1)  # type: ignore[arg-type]
