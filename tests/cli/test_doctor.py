"""`mdsx doctor`: one line for each check, then what to do; the exit status, and JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mdsx.checks.doctor import machine
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _enough_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SHM", tmp_path)


def test_an_undamaged_set_up_exits_with_status_0(run: Run, dataset: Path, tmp_path: Path) -> None:
    options = ["--world-size", 4, "--batch-size", 2, "--write"]
    status, out, err = run("doctor", dataset, "--cache", tmp_path / "cache", *options)
    assert (status, err) == (0, "")
    lines, recommended = out.split("\n\n")
    assert all(re.match(r"ok       \S+( \S+)?  +\S", line) for line in lines.splitlines())
    assert recommended.startswith(f'recommended\n  StreamingDataset("{dataset}", shuffle=mdsx.Shuffle(lanes=1, ')


def test_a_problem_exits_with_status_1_and_says_what_to_do(run: Run, tmp_path: Path) -> None:
    status, out, err = run("doctor", tmp_path / "nothing", "--cache", "/proc/x")
    assert (status, err) == (1, "")
    checks, advice = out.split("\n\nwhat to do\n")
    assert re.search(r"^problem  index +.*: no dataset is here", checks, re.MULTILINE)
    assert re.search(r"^problem  cache ", checks, re.MULTILINE)
    assert re.search(r"^  index: check the URL", advice, re.MULTILINE)
    assert re.search(r"^  cache: .*--cache DIR", advice, re.MULTILINE)


def test_warnings_do_not_change_the_status(run: Run, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SHARED", 2**60)
    status, out, _ = run("doctor", dataset)
    assert status == 0
    assert "space " not in out  # the shards are read in place
    assert "warning  shared memory" in out
    assert "  shared memory: start the container with --shm-size=8g" in out


def test_json_has_each_finding_with_its_figures(run: Run, dataset: Path, tmp_path: Path) -> None:
    status, out, _ = run("doctor", dataset, "--json", "--cache", tmp_path)
    found = json.loads(out)
    assert (status, found["ok"]) == (0, True)
    by_check = {finding["check"]: finding for finding in found["findings"]}
    assert by_check["index"]["figures"]["samples"] == 300
    assert by_check["recommendation"]["figures"]["lanes"] == 1
    assert {finding["state"] for finding in found["findings"]} == {"ok"}
    status, out, _ = run("doctor", tmp_path / "nothing", "--json", "--cache", tmp_path)
    found = json.loads(out)
    assert (status, found["ok"]) == (1, False)
    (index,) = [finding for finding in found["findings"] if finding["check"] == "index"]
    assert index["advice"].startswith("check the URL")
