"""The example for Ray Train: workers are killed, and the training continues on another number of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engines.cluster.conftest import Cluster
from tests.examples.runs import EXAMPLES
from tests.waiting import wait_until
from tools.environment import PeerEnvironment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SAMPLES, EPOCHS, SECONDS = 1003, 2, 240

PROGRAM = """
import sys

import ray_train
from tests.engines.ray.scenarios import connected

with connected():
    ray_train.main(*sys.argv[1:])
"""

AHEAD = """
import sys

from ray import train
from ray.train.torch import TorchTrainer, prepare_data_loader

from mdsx.torch import StreamingDataLoader, StreamingDataset


def worker():
    for options in ({}, {"move_to_device": False}):
        loader = StreamingDataLoader(StreamingDataset(sys.argv[1], columns=["id"]), 16)
        next(iter(prepare_data_loader(loader, **options)))
        print(sum(loader.consumed.samples.values()), flush=True)


TorchTrainer(worker, scaling_config=train.ScalingConfig(num_workers=0)).fit()  # in this process
"""


@pytest.fixture(scope="module")
def python() -> str:
    environment = PeerEnvironment("ray")
    environment.install()
    return str(environment.python)


@pytest.fixture
def cluster(python: str) -> Iterator[Cluster]:
    """A cluster of two nodes, of two processors each."""
    cluster = Cluster(python)
    cluster.say("add")
    yield cluster
    cluster.close()


@contextmanager
def training(python: str, data: str, run: Path, *workers: str, address: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Start the example, where its workers can import the modules of examples/, and end it."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "RAY_ADDRESS": address}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15"}
    command = [python, "-c", PROGRAM, data, str(run), *workers]
    with open(f"{run}.log", "a") as log:
        program = subprocess.Popen(command, cwd=EXAMPLES, env=environment, stdout=log, stderr=log)
        try:
            yield program
        finally:
            program.kill()
            program.wait()


def wait_for_step(program: subprocess.Popen[bytes], file: Path, step: int) -> None:
    """Wait until a worker that began with step 1 has recorded `step` in its file."""

    def holds() -> bool:
        assert program.poll() is None
        return file.exists() and file.read_text().count("\n") >= step

    wait_until(holds, seconds=SECONDS)


def kill_worker(program: subprocess.Popen[bytes], file: Path) -> None:
    """Kill the process that records in `file`."""
    for process in psutil.Process(program.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Ray ends those that are idle
            if str(file) in {opened.path for opened in process.open_files()}:
                process.kill()
                return
    raise AssertionError(f"no process has {file}")


def epochs(run: Path, monkeypatch: pytest.MonkeyPatch) -> list[Counter[int]]:
    monkeypatch.syspath_prepend(EXAMPLES)
    found: Any = importlib.import_module("data")
    monkeypatch.delitem(sys.modules, "data")
    counts: list[Counter[int]] = found.epochs(run)
    return counts


def test_ray_train_resumes_on_other_workers_exactly_once(
    python: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with training(python, data, run, "2") as program:
        file = run / "samples" / "from-000001.1.jsonl"
        wait_for_step(program, file, 18)
        kill_worker(program, file)
        assert program.wait(SECONDS)
    assert "WorkerGroupError" in Path(f"{run}.log").read_text()
    with training(python, data, run, "3") as program:
        assert program.wait(SECONDS) == 0
    assert epochs(run, monkeypatch) == [Counter(range(SAMPLES))] * EPOCHS


def test_ray_train_continues_by_itself_on_the_nodes_that_are_left(
    cluster: Cluster, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with training(cluster.python, data, run, "1", "3", address=cluster.address) as program:
        wait_for_step(program, run / "samples" / "from-000001.2.jsonl", 12)
        cluster.say("lose")
        assert program.wait(SECONDS) == 0
    *_, last = sorted(path.name[5:11] for path in (run / "samples").iterdir())
    assert len(list((run / "samples").glob(f"from-{last}.*"))) == 2  # workers
    assert epochs(run, monkeypatch) == [Counter(range(SAMPLES))] * EPOCHS


def test_a_prepared_loader_is_a_batch_ahead_of_the_loop(python: str, data: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [python, "-c", AHEAD, data]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=SECONDS, check=True)
    assert done.stdout.decode().split() == ["32", "16"]
