"""A plugin of pytest: mutmut 3.8 then notes the functions that tests reach in threads and in forked processes, and runs
the tests of the mutated module first. Its sessions run beside each other.

- mutmut keeps the caller of each function in a context variable. A generator that begins in one thread and ends in
  another then fails, or crashes the interpreter. Callers are not needed here.
- Sessions of one user that begin at the same time would take each other's rights to pytest's directory away. Each has
  its own, so that tests that work as another user do not fail by chance.
- What a forked process reaches, it writes into a pipe, which the test's process reads when the test ends. A file would
  fail in tests that limit the size of files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from typing import Any

import pytest
from mutmut.core import MutmutCallStack  # type: ignore[import-not-found, unused-ignore]
from mutmut.state import state  # type: ignore[import-not-found, unused-ignore]

MutmutCallStack.set = staticmethod(lambda value: None)
MutmutCallStack.reset = staticmethod(lambda token: None)
_DIRECTORY = "PYTEST_DEBUG_TEMPROOT"
_PIPE = 2**20  # bytes: the most that a process may ask for


class Reached(set[str]):
    """The functions that a test has reached so far."""

    def __init__(self) -> None:
        super().__init__()
        self._read, self._write = os.pipe2(os.O_NONBLOCK)
        fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _PIPE)
        self._process = os.getpid()

    def add(self, name: str) -> None:
        if os.getpid() != self._process and name not in self:
            os.write(self._write, f"{name}\n".encode())
        super().add(name)

    def take_others(self) -> None:
        """Add what other processes reached."""
        with suppress(BlockingIOError):  # nothing was written
            written = os.read(self._read, _PIPE)
            self.update(written.decode().split())


def pytest_configure() -> None:
    state()._stats = Reached()
    os.environ[_DIRECTORY] = tempfile.mkdtemp(prefix="pytest-")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ.pop(_DIRECTORY), ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the mutated module, and then of its package: they are the likeliest to notice."""
    package, _, module = os.environ.get("MUTANT_UNDER_TEST", "").rpartition(".")[0].rpartition(".")
    folder = "/".join(["tests", *package.split(".")[1:]])
    items.sort(key=lambda item: (f"test_{module}.py" != item.path.name, folder not in item.path.parent.as_posix()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: Any) -> None:
    del item
    state()._stats.take_others()
