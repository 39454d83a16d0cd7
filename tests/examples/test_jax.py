"""The example for JAX: in an environment without PyTorch, killed and resumed on another number of processes."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runs import EXAMPLES
from tools.environment import PeerEnvironment

PROGRAM = """
import importlib.util, os, runpy, signal, sys
assert importlib.util.find_spec("torch") is None
import data

examples, killed_in, *arguments = sys.argv[1:]
record = data.record

def killing(run, step, *more):
    record(run, step, *more)
    if step == int(killed_in):
        os.kill(os.getpid(), signal.SIGKILL)

data.record = killing
sys.argv = [f"{examples}/jax_loop.py", *arguments]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def python() -> str:
    environment = PeerEnvironment("jax", shared=False)
    environment.install()
    return str(environment.python)


def start(python: str, data: str, run: Path, processes: int, killed_in: int = 0) -> list[int]:
    """Run the program; the last process kills itself in a step, and then the others are ended. Return the statuses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    paths = os.pathsep.join((str(EXAMPLES), str(EXAMPLES.parent)))
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    ranks = [
        subprocess.Popen(
            [
                python,
                "-c",
                PROGRAM,
                *map(str, (EXAMPLES, killed_in if rank == processes - 1 else 0, data, run, address)),
                str(rank),
                str(processes),
            ],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(processes)
    ]
    try:
        ranks[-1].wait(200)
        for rank in ranks:
            if killed_in:
                rank.kill()  # JAX takes SIGTERM for a notice, and would wait
            rank.wait(200)
        return [rank.returncode for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_jax_resumes_on_other_processes_exactly_once(
    python: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = start(python, data, tmp_path, 2, killed_in=8)[::-1]
    assert first == -signal.SIGKILL
    assert 0 not in others
    assert start(python, data, tmp_path, 1) == [0]
    monkeypatch.syspath_prepend(EXAMPLES)
    steps: Any = importlib.import_module("data").steps(tmp_path)
    monkeypatch.delitem(sys.modules, "data")
    assert list(steps) == [*range(1, 41)]
    for epoch in range(2):
        numbers = [number for step in range(20) for number in steps[20 * epoch + step + 1].numbers]
        assert Counter(numbers) == Counter(range(960))
    losses = [float.fromhex(min(step.losses)) for step in steps.values()]
    assert sum(losses[-5:]) < sum(losses[:5])
