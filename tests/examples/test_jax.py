"""The example for JAX: in an environment without PyTorch, killed and resumed on another number of processes."""

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
import importlib.util, json, sys
from pathlib import Path

import jax_loop  # once for all processes
from tests.examples.runs import Start, run_ranks

assert importlib.util.find_spec("torch") is None
data, run = sys.argv[1:]
starts = [Start(2, killed_in=8), Start(1)]
print(json.dumps([run_ranks("jax_loop.py", data, Path(run), start, addressed=True) for start in starts]))
"""


SHARDED = """
import sys
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import mdsx

sharded = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
for batch in mdsx.Loader(sys.argv[1], 48, seed=7):
    tokens = jax.make_array_from_process_local_data(sharded, batch["tokens"])
    assert tokens.shape == (48, 16), tokens.shape
    parts = tokens.addressable_shards
    assert len({part.device for part in parts}) == 4
    for part in parts:
        assert part.data.shape == (12, 16), part.data.shape
        assert np.array_equal(part.data, batch["tokens"][part.index])
print("all batches are sharded")
"""


@pytest.fixture(scope="module")
def python() -> str:
    environment = PeerEnvironment("jax", shared=False)
    environment.install()
    return str(environment.python)


def test_jax_resumes_on_other_processes_exactly_once(
    python: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = os.pathsep.join((str(EXAMPLES), str(EXAMPLES.parent)))
    devices = "--xla_force_host_platform_device_count=4"  # of each process
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}
    run = str(tmp_path / "run")
    done = subprocess.run(
        [python, "-c", PROGRAM, data, run], env=environment, stdout=subprocess.PIPE, timeout=200, check=True
    )
    first, last = json.loads(done.stdout)
    assert killed(first)
    assert last == [0]
    monkeypatch.syspath_prepend(EXAMPLES)
    steps: Any = importlib.import_module("data").steps(run)
    monkeypatch.delitem(sys.modules, "data")
    assert list(steps) == [*range(1, 41)]
    for epoch in range(2):
        numbers = [number for step in range(20) for number in steps[20 * epoch + step + 1].numbers]
        assert Counter(numbers) == Counter(range(960))
    losses = [float.fromhex(min(step.losses)) for step in steps.values()]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_a_batch_is_one_array_over_the_local_devices(python: str, data: str) -> None:
    devices = "--xla_force_host_platform_device_count=4"
    paths = str(EXAMPLES.parent)
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}
    done = subprocess.run(
        [python, "-c", SHARDED, data], env=environment, stdout=subprocess.PIPE, timeout=200, check=True, text=True
    )
    assert done.stdout == "all batches are sharded\n"
