"""Which tests are slow; and what pytest prints at the end: the seconds of each module, and how many tests it left out.

The seconds are the processor's, and include those of the processes that tests start. A fixture of the whole session,
such as a server, is a line of its own: its seconds count when it ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing.forkserver
import os
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.check import HEADING

MARKS = ("slow", "engines")  # of the tests that only `check --all` runs: see pyproject.toml
_EXPENSIVE = 10.0  # seconds: the tests of a module should take less, or be `slow`
_TICKS = os.sysconf("SC_CLK_TCK")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Summary(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests `slow` as their `slow_if` says: before pytest chooses by marks."""
    for item in items:
        for mark in item.iter_markers("slow_if"):
            assert isinstance(item, pytest.Function)
            if eval(mark.args[0], vars(item.module), {"id": item.callspec.id, **item.callspec.params}):
                item.add_marker("slow")


class Summary:
    """A plugin of pytest. The test processes of xdist send what they counted to the one that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, float] = defaultdict(float)
        self._counted = 0.0
        self._left_out = 0

    def _count(self, name: str) -> None:
        """Add what was spent since the last call to what `name` costs."""
        children = not self._config.pluginmanager.hasplugin("dsession")  # its children are the test processes
        spent = sum(os.times()[:4]) + _of_fork_server() if children else sum(os.times()[:2])
        self._seconds[name] += spent - self._counted
        self._counted = spent

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._left_out += sum(any(map(item.get_closest_marker, MARKS)) for item in items)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._count("imports and collection")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._count(_module(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope != "session":
            return (yield)
        self._count(_module(request._pyfuncitem))
        try:
            return (yield)
        finally:
            self._count(f"fixture {fixturedef.argname}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        self._count(_module(item))
        return (yield)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
        self._count(f"fixture {fixturedef.argname}" if fixturedef.scope == "session" else _module(request.node))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._count("imports and collection")
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["summary"] = (dict(self._seconds), self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        seconds, left_out = getattr(node, "workeroutput", {}).get("summary", ({}, 0))
        for name, spent in seconds.items():
            self._seconds[name] += spent
        self._left_out = max(self._left_out, left_out)  # each process collects all tests

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(HEADING)
        found = sorted(self._seconds.items(), key=lambda item: (-item[1], item[0]))
        for name, seconds in found:
            if seconds >= 0.05:
                terminalreporter.write_line(f"{seconds:8.1f} {name}")
        above = ", ".join(f"{name} ({seconds:.0f})" for name, seconds in found if seconds > _EXPENSIVE)
        all_of_them = sum(self._seconds.values())
        terminalreporter.write_line(f"{all_of_them:8.1f} in all; above {_EXPENSIVE:.0f}: {above or 'none'}")
        if self._left_out:
            terminalreporter.write_line(f"left to `python3 -m tools check --all`: {self._left_out:,} tests")


def _module(node: pytest.Item | pytest.Collector) -> str:
    return node.nodeid.partition("::")[0]


def _of_fork_server() -> float:
    """Return the seconds of this process's fork server (tests/fork_server.py), and of its processes that ended."""
    pid = multiprocessing.forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):  # there is none, or a system without /proc
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15])) / _TICKS
    return 0.0
