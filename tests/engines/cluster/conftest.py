"""A Ray cluster of several nodes on this machine, and programs that join it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.environment import PeerEnvironment

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 240  # for a program


class Cluster:
    """A running cluster: see `holder.py`."""

    def __init__(self, python: str) -> None:
        self.python = python
        self._holder = subprocess.Popen(
            [python, "-m", "tests.engines.cluster.holder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment(),
        )
        self.address = self._answer()

    def _environment(self, address: str | None = None) -> dict[str, str]:
        found = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
        found.pop("RAY_ADDRESS", None)
        return found if address is None else {**found, "RAY_ADDRESS": address}

    def _answer(self) -> str:
        assert self._holder.stdout is not None
        answer = self._holder.stdout.readline().strip()
        assert answer, "the cluster has ended"
        return answer

    def say(self, line: str) -> None:
        """Add or lose a node."""
        assert self._holder.stdin is not None
        print(line, file=self._holder.stdin, flush=True)
        self._answer()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program that joins the cluster."""
        return subprocess.Popen(
            [self.python, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(self.address),
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a Python program that joins the cluster, and return its exit status and what it printed."""
        return ended(self.start(*arguments))

    def close(self) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait(60)


def ended(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit status of a program, and what it printed."""
    try:
        out, errors = program.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    return program.returncode, out, errors


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    environment = PeerEnvironment("ray")
    environment.install()
    cluster = Cluster(str(environment.python))
    yield cluster
    cluster.close()
