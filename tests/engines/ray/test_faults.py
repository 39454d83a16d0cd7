"""Every row is in the dataset once, whatever happens to the tasks and drivers of a real Ray of several processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import mdsx
from tests.engines.ray.outcome import check, unused
from tests.engines.ray.scenarios import ROWS, LateAttempt, result, start, wait_for

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.mark.parametrize("how", ["killed", "raises", "result"])
def test_a_task_that_fails_once_is_repeated(ray_python: Path, tmp_path: Path, how: str) -> None:
    """Its worker is killed while it writes; it raises; its worker is killed before Ray has the result."""
    found = result(start(ray_python, "fails", tmp_path, tasks=how))
    assert (tmp_path / "failed").exists()
    assert found["samples"] == ROWS
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")
    assert not list((tmp_path / "out").glob("_*"))


def test_an_attempt_at_work_after_the_commit_does_not_count(ray_python: Path, tmp_path: Path) -> None:
    """Ray has lost its worker, and has started the task again. The driver removes what it has written; so it stops."""
    late = LateAttempt(tmp_path)
    result(start(ray_python, "fails", tmp_path, tasks="straggles"))
    check(tmp_path / "out")
    with pytest.raises(mdsx.UsageError, match="taken over"):
        late.end()
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")


def test_a_job_that_fails_leaves_nothing(ray_python: Path, tmp_path: Path) -> None:
    assert result(start(ray_python, "fails_for_good", tmp_path, tasks="raises")) == "RayTaskError(RuntimeError)"
    with pytest.raises(mdsx.MissingError):
        mdsx.Dataset(tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_of_two_drivers_one_succeeds(ray_python: Path, tmp_path: Path) -> None:
    both = [start(ray_python, "together", tmp_path) for _ in range(2)]
    assert sorted(result(process) for process in both) == ["late", "written"]
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")


def test_a_killed_driver_runs_again_while_its_task_still_writes(ray_python: Path, tmp_path: Path) -> None:
    late = LateAttempt(tmp_path)
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
    folder = late.end()
    check(tmp_path / "out")
    assert folder in unused(tmp_path / "out")
