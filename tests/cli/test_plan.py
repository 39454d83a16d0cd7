"""`mdsx plan` and `mdsx trace`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mdsx
from tests.cli.conftest import Run


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A plan, and a mixture, as files."""
    for name in ("web", "code"):
        with mdsx.Writer(tmp_path / name, {"tokens": "uint16[*]"}, lengths=["tokens"]) as out:
            for number in range(400):
                out.write({"tokens": np.zeros(number % 50, np.uint16)})
    phase = {"proportions": {"web": 0.5, "code": 0.5}, "global_batch_size": 4}
    batching = {"kind": "pack", "capacity": 64, "length": "tokens", "window": 32}
    plan = {"phases": {"0": {**phase, "batching": batching}, "5K": {"global_batch_size": 8}}, "max_epochs": {"code": 3}}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    mixture = {"components": {name: {"url": str(tmp_path / name)} for name in ("web", "code")}}
    (tmp_path / "mixture.json").write_text(json.dumps(mixture), encoding="utf-8")
    return str(tmp_path / "plan.json"), str(tmp_path / "mixture.json")


def test_a_plan_is_shown_before_the_run(files: tuple[str, str], run: Run) -> None:
    shown = run("plan", *files).out
    assert "phase 0: 0 to 5,000 tokens" in shown
    assert "steps in all" in shown
    found = json.loads(run("plan", *files, "--json").out)
    assert [phase["start"] for phase in found["phases"]] == [0, 5000]
    assert found["exceeded"] == []


def test_what_max_epochs_forbids_is_an_exit_code(files: tuple[str, str], run: Run) -> None:
    status, shown, _ = run("plan", *files, "--until", "100K")
    assert status == 1
    assert "code is read" in shown


def test_a_trace_shows_a_step_and_finds_a_sample(files: tuple[str, str], run: Run) -> None:
    items = [json.loads(line) for line in run("trace", *files, "--step", "3", "--json").out.splitlines()]
    assert {item["step"] for item in items} == {3}
    one = items[0]
    name = f"{one['component']}:{one['sample']}"
    assert f"step 3, rank 0, row {one['row']}" in run("trace", *files, "--sample", name, "--steps", "10").out
