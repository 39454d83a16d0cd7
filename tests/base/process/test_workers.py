"""Which workers a caller may ask for. Those of a cluster are tested in tests/engines/cluster/."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.base.process import Report, Workers


def double(task: int, report: Report) -> int:
    return task * 2


@pytest.mark.parametrize("processes", [None, 1, 2])
def test_without_an_engine_processes_of_this_machine_work(processes: int | None) -> None:
    assert Workers.of(processes, None).map(double, [1, 2], lambda *_: None, name="test") == [2, 4]


@pytest.mark.parametrize(
    ("processes", "engine", "message"),
    [(0, None, "num_workers must be"), (True, None, "num_workers must be"), (1, "dask", "unknown engine")],
)
def test_wrong_workers_are_refused(processes: Any, engine: Any, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        Workers.of(processes, engine)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_a_missing_engine_is_named_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}')
    with pytest.raises(mdsx.UsageError, match=r"Ray is not installed; pip install 'mdsx\[ray\]'"):
        mdsx.convert("jsonl", tmp_path / "a.jsonl", tmp_path / "out", engine="ray")
    assert not (tmp_path / "out").exists()
