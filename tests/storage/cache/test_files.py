"""Single files of the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mdsx.storage.cache import CacheDirectory, Verdict
from mdsx.storage.cache.files import Hold, evict, map_held, set_next_use
from tests.storage.cache.test_cache import SIZE, content, fetch


def test_a_missing_file_counts_as_evicted(tmp_path: Path) -> None:
    assert evict(tmp_path / "a")


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
