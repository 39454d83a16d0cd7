"""`mdsx clean` prints what it removes, and what it keeps and why."""

from __future__ import annotations

import json
from pathlib import Path

from mdsx.writer import write_part
from tests.cli.conftest import Run
from tests.writer.runs.test_clean import dead, folders
from tests.writer.runs.test_commit import batches, begin


def test_it_prints_what_is_removed_and_what_stays(run: Run, tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    dead(url, 0, 1)
    running = begin(url)
    write_part(running.job, 0, batches(0))
    status, out, err = run("clean", url, "--dry-run")
    assert (status, err) == (0, "")
    assert f"still running here: run {running.job.run}\n" in out
    assert "would remove 3 attempts that do not count, of run " in out
    assert f"kept 1 attempts that do not count, of run {running.job.run}" in out
    assert "(its run is active)" in out
    assert len(folders(url)) == 4
    assert "removed 3 attempts that do not count" in run("clean", url, "--older-than", "1d").out
    assert len(folders(url)) == 1
    assert "nothing to remove" in run("clean", url).out


def test_its_json_has_amounts_and_names(run: Run, tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    (done,) = dead(url, 0)
    found = json.loads(run("clean", url, "--json").out)
    assert found["removed"]["leftovers"] == 3
    assert found["removed"]["size"] > 0
    assert done.folder in [leftover["name"] for leftover in found["removed_list"]]
    assert (found["dry_run"], found["running"], found["kept"]["leftovers"]) == (False, [], 0)


def test_an_invalid_age_is_one_line(run: Run, tmp_path: Path) -> None:
    status, _, err = run("clean", tmp_path, "--older-than", "yesterday")
    assert status == 1
    assert "--older-than is not an age" in err
