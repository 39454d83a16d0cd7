"""Systems other than Linux have replacements for what they lack."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mdsx.base import system


def test_training_works_without_linux_features(tmp_path: Path) -> None:
    program = Path(__file__).with_name("other_system.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["trained"]


@pytest.mark.parametrize("size", [1, 4096, 2**20 + 17])
@pytest.mark.parametrize("how", ["here", "no such call", "not on this file system"])
def test_allocated_files_are_zeros_on_real_blocks(
    size: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    if how == "no such call":
        monkeypatch.delattr(os, "posix_fallocate")
    elif how != "here":
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    with (tmp_path / "file").open("x+b") as file:
        system.allocate(file.fileno(), size)
        assert file.read() == bytes(size)
        assert os.fstat(file.fileno()).st_blocks * 512 >= size


def test_a_full_disk_raises_without_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with (tmp_path / "file").open("x+b") as file, pytest.raises(OSError, match="no space"):
        system.allocate(file.fileno(), 10)


@pytest.mark.parametrize("without", [False, True])
def test_nameless_files_leave_no_name(without: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if without:
        monkeypatch.delattr(os, "memfd_create")
    descriptor = system.nameless_file()
    try:
        os.pwrite(descriptor, b"bytes", 7)
        assert os.pread(descriptor, 100, 0) == bytes(7) + b"bytes"
        assert not os.listdir(tmp_path)
    finally:
        os.close(descriptor)


def test_an_unknown_boot_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.boot() == system.boot()

    def refuse(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert system.boot() == "unknown"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_001])
def test_a_mapping_shows_the_file_and_holds_no_descriptor(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    before = descriptors(), system.mapped_files()
    with open(tmp_path / "file", "rb") as file:
        memory = system.map_file(file.fileno(), size)
    assert memory[:] == data
    assert memoryview(memory).readonly
    assert (descriptors(), system.mapped_files()) == (before[0], before[1] + 1)
    view = np.frombuffer(memory, np.uint8)[size // 2 :]
    del memory
    gc.collect()
    assert view.tobytes() == data[size // 2 :]
    assert system.mapped_files() == before[1] + 1
    del view
    gc.collect()
    assert system.mapped_files() == before[1]


def test_an_unmappable_file_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty"):
        system.map_file(0, 0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="device"):
        system.map_file(descriptor, 10)
    os.close(descriptor)


def test_lock_holders_names_the_processes_with_a_lock(tmp_path: Path) -> None:
    with open(tmp_path / "held", "w") as held, open(tmp_path / "free", "w"):
        fcntl.flock(held, fcntl.LOCK_SH)
        found = system.lock_holders(tmp_path)
        assert found is not None
        assert found[os.stat(tmp_path / "held").st_ino] == {os.getpid()}
        assert os.stat(tmp_path / "free").st_ino not in found
        assert os.stat(tmp_path).st_ino not in found  # its own lock, by which it finds the device
    assert system.process_name(os.getpid())
    assert system.process_name(2**30) == ""


def test_unknown_lock_holders_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: "1: POSIX  ADVISORY  WRITE 1 00:01:2 0 EOF\n")
    assert system.lock_holders(tmp_path) is None
    monkeypatch.undo()
    monkeypatch.setattr(Path, "read_text", lambda path: (_ for _ in ()).throw(FileNotFoundError()))
    assert system.lock_holders(tmp_path) is None
