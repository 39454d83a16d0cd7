"""The shuffle py1e has the statistics of the installed mosaicml-streaming's own."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest
from numpy.typing import NDArray

from mdsx.simulate.orders import ShardLine
from mdsx.simulate.py1e import Py1e
from mdsx.simulate.quality import distinct_in, repeated_in
from tools.environment import PeerEnvironment

pytestmark = pytest.mark.slow

COUNTS, BLOCK, NODES, BATCH, SEEDS = np.array([180, 200, 220, 150] * 100), 4000, 4, 64, 4
PROGRAM = """
import json, sys, types
import numpy as np
root, counts, block, nodes, seeds = sys.argv[1], *map(json.loads, sys.argv[2:])
for name in ("streaming", "streaming.base", "streaming.base.shuffle"):  # without their imports of PyTorch and clouds
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [root + "/" + name.replace(".", "/")]
from streaming.base.shuffle.py1e import get_shuffle_py1e
for seed in range(seeds):
    found = get_shuffle_py1e(np.array(counts), nodes, seed, 0, block)
    print(json.dumps(found.reshape(nodes, -1).T.ravel().tolist()))  # positions take turns among the nodes
"""


@pytest.fixture(scope="module")
def theirs() -> list[NDArray[np.int64]]:
    environment = PeerEnvironment("mosaicml")
    environment.install()
    given = [json.dumps(value) for value in (COUNTS.tolist(), BLOCK, NODES, SEEDS)]
    command = [str(environment.python), "-c", PROGRAM, str(environment.packages), *given]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [np.array(json.loads(line)) for line in done.stdout.splitlines()]


def statistics(numbers: NDArray[np.int64]) -> tuple[float, float, float, float]:
    """Return the shards in a batch, the repeated ones, how many positions a shard spreads over, and the distance of
    neighbours."""
    shards = np.searchsorted(np.cumsum(COUNTS), numbers, side="right")
    batches = shards[: len(shards) // BATCH * BATCH].reshape(-1, BATCH)
    places = np.argsort(shards, kind="stable")
    spread = [float(np.ptp(part)) for part in np.split(places, np.cumsum(COUNTS)[:-1])]
    return (
        float(distinct_in(batches).mean()),
        float(repeated_in(batches).mean()),
        float(np.median(spread)),
        float(np.abs(np.diff(numbers)).mean()),
    )


def test_statistics_are_those_of_the_package(theirs: list[NDArray[np.int64]]) -> None:
    ours = [
        Py1e(ShardLine.of(COUNTS, seed=seed), BLOCK, NODES, seed).numbers(0, len(theirs[0])) for seed in range(SEEDS)
    ]
    expected = np.mean([statistics(numbers) for numbers in theirs], axis=0)
    found = np.mean([statistics(numbers) for numbers in ours], axis=0)
    assert len(theirs) == SEEDS
    assert found == pytest.approx(expected, rel=0.03)
