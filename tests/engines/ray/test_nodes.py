"""Every row is in the dataset once on a cluster that loses nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.cluster.conftest import Cluster
from tests.engines.ray.outcome import check, unused
from tests.engines.ray.scenarios import DEADLINE, ROWS, result, start, wait_for

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(ray_python: Path) -> Iterator[Cluster]:
    cluster = Cluster(str(ray_python))
    yield cluster
    cluster.close()


@pytest.fixture
def node(cluster: Cluster) -> Iterator[None]:
    """Add a node, and remove it if the test does not."""
    cluster.say("add")
    yield
    cluster.say("lose")


def test_a_node_that_is_lost_while_it_writes(cluster: Cluster, node: None, tmp_path: Path) -> None:
    writing = start(cluster.python, "on_nodes", tmp_path, tasks="first", address=cluster.address)
    wait_for(tmp_path / "writes")
    cluster.say("lose")
    cluster.say("add")
    assert result(writing)["samples"] == ROWS
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")


def test_a_node_that_is_lost_with_the_results_of_its_tasks(cluster: Cluster, node: None, tmp_path: Path) -> None:
    writing = start(cluster.python, "on_nodes", tmp_path, tasks="none", address=cluster.address)
    until = time.monotonic() + DEADLINE
    while len(list(tmp_path.glob("done-*"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    cluster.say("lose")
    cluster.say("add")
    (tmp_path / "continue").touch()
    assert result(writing)["samples"] == ROWS
    check(tmp_path / "out")
    assert not unused(tmp_path / "out")
