"""What the doctor finds wrong with a machine: the cache's directory, its disk, and the limits of the process."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mdsx.base.sizes import format_size
from mdsx.checks.doctor import Finding, machine
from mdsx.checks.doctor.machine import check_machine, room_of
from tests.forks import as_another_user, let_through


def checked(directory: Path, *, limit: int | None = None, needed: int = 0, in_use: int = 1) -> dict[str, Finding]:
    return {found.check: found for found in check_machine(directory, limit=limit, needed=needed, in_use=in_use)}


@contextmanager
def mounted(place: Path, options: str) -> Iterator[bool]:
    """Whether a disk could be mounted at a new directory, while the context lasts."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB; if nothing can be mounted, the usual one."""
    with mounted(tmp_path / "tiny", "size=256k"):
        yield tmp_path / "tiny"


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A read-only disk; if nothing can be mounted, a directory without the right to write, which root lacks in /sys."""
    place = tmp_path / "fixed"
    with mounted(place, "ro") as done:
        if not done:
            place.chmod(0o555)
        yield place if done or os.geteuid() else Path("/sys/kernel")
        if not done:
            place.chmod(0o755)


def test_a_directory_that_will_be_made_is_left_as_it_was(tmp_path: Path) -> None:
    found = checked(tmp_path / "a" / "b")
    assert {check: finding.state for check, finding in found.items() if check != "shared memory"} == {
        "cache": "ok",
        "locks": "ok",
        "space": "ok",
        "descriptors": "ok",
    }
    assert found["cache"].found.endswith("can be written, and will be created")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/proc/x", "/proc/self/x", "/dev/null/x", "/sys/kernel"])
def test_a_directory_that_cannot_be_written(name: str) -> None:
    """Not by root either."""
    if not Path(name).parent.exists():
        pytest.skip(f"this system has no {name}")
    found = checked(Path(name))
    assert found["cache"].state == "problem"
    assert "use another directory: --cache DIR, or $MDSX_CACHE" in str(found["cache"].advice)
    assert name in found["cache"].found or "the cache cannot be " in found["cache"].found


def test_a_read_only_cache(read_only: Path) -> None:
    found = checked(read_only)["cache"]
    assert found.state == "problem"
    assert found.found.startswith(f"{read_only}: the cache is read-only (")
    assert str(found.advice) == "make it writable by this user, or use another directory: --cache DIR, or $MDSX_CACHE"


def test_a_cache_below_a_folder_that_this_user_may_not_enter(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "in" / "cache").mkdir(parents=True)
    let_through(tmp_path)
    secret.chmod(0o700)
    found = as_another_user(lambda: checked(secret / "in" / "cache")["cache"], denied=secret)
    assert found.state == "problem"
    assert "may not" in found.found
    assert "--cache DIR" in str(found.advice)


def test_a_disk_without_space(tiny: Path, tmp_path: Path) -> None:
    free = shutil.disk_usage(tiny).free
    found = checked(tiny, needed=free + 1)["space"]
    assert found.state == "problem"
    assert "free some space (`mdsx cache prune`)" in str(found.advice)
    assert found.found.endswith(": a run needs " + format_size(free + 1))
    found = checked(tmp_path, limit=2**60)["space"]
    assert (found.state, "less than the limit of" in found.found) == ("problem", True)
    if free <= 2**18:  # it is mounted
        with open(tiny / "full", "wb") as file:
            file.write(bytes(free))
        assert checked(tiny)["space"].found.startswith(f"{tiny}: the disk is full")


def test_what_is_cached_counts_as_room(tmp_path: Path) -> None:
    shard = tmp_path / "fingerprint" / "hash.mdsx"
    shard.parent.mkdir()
    shard.write_bytes(bytes(10_000))
    assert checked(tmp_path)["space"].figures["held"] == 10_000
    usage = shutil.disk_usage(tmp_path)
    assert 0.7 * usage.free < room_of(tmp_path) <= 0.9 * usage.total


def test_locks_that_do_not_exclude_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as on some network file systems
    found = checked(tmp_path)["locks"]
    assert found.state == "problem"
    assert "use a local file system" in str(found.advice)


def test_a_file_system_that_hangs_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **options: Any) -> NoReturn:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert checked(tmp_path)["locks"].state == "problem"


def test_a_network_file_system_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "network_file_system", lambda path: True)
    assert checked(tmp_path)["cache"].state == "warning"


@pytest.mark.parametrize(("limit", "in_use", "state"), [(256, 1, "problem"), (1024, 64, "ok"), (1024, 1000, "warning")])
def test_few_descriptors(tmp_path: Path, limit: int, in_use: int, state: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        found = checked(tmp_path, in_use=in_use)["descriptors"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found.state == state
    assert found.found.startswith(f"a process may have {limit:,} open files")
    assert state == "ok" or str(found.advice).startswith("`ulimit -n 65536` before the job starts")


def test_little_shared_memory(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SHM", tiny)
    monkeypatch.setattr(machine, "_SHARED", shutil.disk_usage(tiny).total + 1)
    found = checked(tmp_path)["shared memory"]
    assert found.state == "warning"
    assert "--shm-size=8g" in str(found.advice)
    monkeypatch.setattr(machine, "_SHM", tmp_path / "nowhere")
    assert checked(tmp_path)["shared memory"].state == "ok"
