"""`mdsx simulate`: a plan as text and as JSON."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import mdsx
from tests.cli.conftest import Run

MADE_UP = ("simulate", "--samples", "2e4", "--sample-size", "1kB", "--shard-size", "256kB", "--step", "0.01")


def test_it_prints_what_a_run_costs_and_waits_for(run: Run) -> None:
    machines = ("--world-size", 2, "--ranks-per-node", 1, "--resume-world-size", 1)
    status, out, err = run(*MADE_UP, *machines, "--price-gb", 90, "--currency", "EUR")
    assert (status, err) == (0, "")
    assert "made up: 20,000 samples in 79 shards" in out
    for part in ("time to first batch", "steps that wait", "requests", "EUR", "shards in use at a time"):
        assert part in out
    assert "continued at half of the epoch on 1 node (1 rank)" in out
    assert "quality of the shuffle, from the whole epoch" in out


def test_its_json_is_the_report(run: Run, dataset: Path) -> None:
    found = json.loads(run("simulate", dataset, "--json", "--batch-size", 8, "--epochs", 2).out)
    assert found["mdsx_simulation"] == 1
    assert found["settings"]["samples"] == 300
    assert found["settings"]["steps"] == found["epochs"][0]["steps"] == 37
    assert found["whole"]["exact"]
    assert [each["method"] for each in found["quality"]["methods"]] == ["mdsx", "exact", "buffer", "py1e", "none"]


def test_it_writes_a_page(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    status, out, _ = run(*MADE_UP, "--html", page)
    assert status == 0
    assert f"the page with charts: {page}" in out
    assert "made up" in page.read_text(encoding="utf-8")


def test_it_gives_the_same_plan_each_time(run: Run) -> None:
    assert run(*MADE_UP, "--json").out == run(*MADE_UP, "--json").out


def test_its_advised_command_makes_up_the_same_data(run: Run) -> None:
    found = json.loads(run(*MADE_UP, "--json").out)
    advised = shlex.split(found["advice"]["command"])[1:-2]  # without the name of the program, and --html
    again = json.loads(run(*advised, "--json").out)
    for name in ("samples", "shards", "bytes", "shard_bytes", "steps"):
        assert again["settings"][name] == found["settings"][name]


def test_a_link_of_0_has_no_limit(run: Run) -> None:
    assert json.loads(run(*MADE_UP, "--link", 0, "--json").out)["settings"]["link"] is None


def test_it_shows_the_busiest_rank(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "int32[*]"}) as out:
        for number in range(2000):
            out.write({"tokens": np.zeros(number * 37 % 500, np.int32)})
    arguments = ("--world-size", 4, "--batch-size", 4, "--pack", 1024, "--micro-batch", 1, "--balance", "10,1")
    page = tmp_path / "plan.html"
    shown = run("simulate", tmp_path / "data", *arguments, "--html", page).out
    of_steps = r"the busiest rank's cost over the mean\n +of each step +1\.\d{3} \(1\.\d{3} without balance\)\n"
    assert re.search(of_steps + " +of each micro-batch", shown)
    assert "Busiest rank in a micro-batch" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no dataset to simulate; give a dataset's URL, or --samples N"),
        (("--samples", "many"), "--samples must be a whole number"),
        (("somewhere", "--samples", "10"), "give datasets or --samples, not both"),
        (("--samples", "10", "--pack", "10"), "need a dataset"),
        (("somewhere", "--balance", "1,1"), "--balance needs --pack"),
        (("somewhere", "--pack", "10", "--balance", "1"), "--balance must be two integers (found 1); for attention"),
        (("--samples", "10", "--cache-limit", "1kB"), "shard of 1000000); give --cache-limit 1000000 or more"),
        (("--samples", "10", "--world-size", "6", "--ranks-per-node", "4"), "a multiple of --ranks-per-node"),
        (("--samples", "10", "--html", "."), "--html names a folder; give the name of a file"),
        (("--samples", "10", "--html", "/nowhere/plan.html"), "--html is in a folder that does not exist"),
        (
            ("--samples", "10", "--batch-size", "2", "--html", "/dev/full"),
            "the page cannot be written: No space left on device",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = run("simulate", *arguments)
    assert (status, out) == (1, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err
