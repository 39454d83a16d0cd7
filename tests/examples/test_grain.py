"""The example for Grain: an mdsx.Dataset as its source, killed and resumed on another number of processes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runs import EXAMPLES, killed
from tools.environment import PeerEnvironment

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys
from pathlib import Path

import grain, mdsx
from tests.examples.runs import Start, run_ranks

data, run = sys.argv[1:]
assert isinstance(mdsx.Dataset(data), grain.sources.RandomAccessDataSource)
starts = [Start(1, killed_in=8), Start(2)]
print(json.dumps([run_ranks("grain_loop.py", data, Path(run), start, numbered=True) for start in starts]))
"""

WORKERS = """
import sys

import grain, mdsx

if __name__ == "__main__":
    source = mdsx.Dataset(sys.argv[1], columns=["id"])
    whole = grain.samplers.IndexSampler(len(source), grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=7)
    batch = [grain.transforms.Batch(17)]
    loader = grain.DataLoader(data_source=source, sampler=whole, operations=batch, worker_count=2)
    batches = iter(loader)
    first, state = next(batches), batches.get_state()
    rest = [batch["id"].tolist() for batch in batches]
    resumed = iter(loader)
    resumed.set_state(state)
    assert [batch["id"].tolist() for batch in resumed] == rest
    assert sorted(first["id"].tolist() + sum(rest, [])) == list(range(1003))
"""


@pytest.fixture(scope="module")
def python() -> str:
    environment = PeerEnvironment("grain")
    environment.install()
    return str(environment.python)


def run(python: str, *arguments: str) -> str:
    paths = os.pathsep.join((str(EXAMPLES), str(EXAMPLES.parent)))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([python, *arguments], env=environment, stdout=subprocess.PIPE, timeout=200, check=True)
    return done.stdout.decode()


def test_grain_resumes_on_other_processes_exactly_once(
    python: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "run")
    first, last = json.loads(run(python, "-c", PROGRAM, data, folder))
    assert killed(first)
    assert last == [0, 0]
    monkeypatch.syspath_prepend(EXAMPLES)
    steps: Any = importlib.import_module("data").steps(folder)
    monkeypatch.delitem(sys.modules, "data")
    assert list(steps) == [*range(1, 41)]
    for epoch in range(2):
        numbers = [number for step in range(20) for number in steps[20 * epoch + step + 1].numbers]
        assert Counter(numbers) == Counter(range(960))


def test_workers_of_grain_read_every_sample(python: str, data: str, tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    run(python, str(program), data)
