"""Every row is in the dataset once, whatever happens to the tasks and drivers of a real Ray of several processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import mdsx
from mdsx.format import filenames
from mdsx.storage import open_storage
from tests.engines.ray.scenarios import ROWS, result, start, wait_for

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


def check(out: Path) -> None:
    """Check that each row is there once, in order, and that the dataset is whole."""
    assert [sample["id"] for sample in mdsx.Dataset(out)] == list(range(ROWS))
    assert mdsx.verify(out).ok


def unused(out: Path) -> list[str]:
    """Return the folders of attempts that the index does not name."""
    named = {Path(prefix).parts[0] for prefix in (path for path in used(out))}
    there = {folder for entry in open_storage(out).list() if (folder := filenames.part_folder(entry.key))}
    return sorted(there - named)


def used(out: Path) -> list[str]:
    index = mdsx.Dataset(out).shards.index
    return [index.name(shard) for shard in range(len(index.counts))]


@pytest.mark.parametrize("how", ["killed", "raises", "result"])
def test_a_task_that_fails_once_is_repeated(ray_python: Path, tmp_path: Path, how: str) -> None:
    """Its worker is killed while it writes; it raises; its worker is killed before Ray has the result."""
    found = result(start(ray_python, "fails", tmp_path, tasks=how))
    assert (tmp_path / "failed").exists()
    assert found["samples"] == ROWS
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")
    assert not list((tmp_path / "out").glob("_*"))


def test_an_attempt_that_ends_after_the_commit_does_not_count(ray_python: Path, tmp_path: Path) -> None:
    result(start(ray_python, "fails", tmp_path, tasks="straggles"))
    check(tmp_path / "out")
    (tmp_path / "end").touch()
    wait_for(tmp_path / "attempt-ended")
    check(tmp_path / "out")
    assert unused(tmp_path / "out") == [(tmp_path / "attempt-ended").read_text()]  # what is left for a clean


def test_a_job_that_fails_leaves_nothing(ray_python: Path, tmp_path: Path) -> None:
    assert result(start(ray_python, "fails_for_good", tmp_path, tasks="raises")) == "RayTaskError(RuntimeError)"
    with pytest.raises(mdsx.MissingError):
        mdsx.Dataset(tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name != "_runs" and path.is_file()]


def test_of_two_drivers_one_succeeds(ray_python: Path, tmp_path: Path) -> None:
    both = [start(ray_python, "together", tmp_path) for _ in range(2)]
    assert sorted(result(process) for process in both) == ["late", "written"]
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")


def test_a_killed_driver_runs_again_while_its_task_still_writes(ray_python: Path, tmp_path: Path) -> None:
    dead = start(ray_python, "fails", tmp_path, tasks="hangs")
    try:
        wait_for(tmp_path / "attempt-writes")
    finally:
        os.killpg(dead.pid, signal.SIGKILL)
        dead.wait()
    with pytest.raises(mdsx.MissingError):
        mdsx.Dataset(tmp_path / "out")
    result(start(ray_python, "fails", tmp_path))
    check(tmp_path / "out")
    (tmp_path / "end").touch()
    wait_for(tmp_path / "attempt-ended")
    check(tmp_path / "out")
    assert (tmp_path / "attempt-ended").read_text() in unused(tmp_path / "out")
