"""Attributes that are computed on first use: once, and also in a child that was forked meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import mdsx
from mdsx.base.cached import cached_property
from tests.forks import forked


class Slow:
    """`value` takes until it is `released`, except in children."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun, self.released = threading.Event(), threading.Event()

    @cached_property
    def value(self) -> object:
        """What it is."""
        self.calls += 1
        self.begun.set()
        self.released.wait()
        return object()


def test_a_value_is_computed_once() -> None:
    slow = Slow()
    slow.released.set()
    assert slow.value is slow.value
    assert slow.calls == 1
    assert Slow.value.__doc__ == "What it is."


def test_a_child_that_was_forked_while_a_thread_computes_does_not_wait_for_it() -> None:
    """It would, for ever, with `functools.cached_property` of Python 3.11."""
    busy, other = Slow(), Slow()
    other.released.set()
    thread = threading.Thread(target=lambda: busy.value)
    thread.start()
    try:
        busy.begun.wait()
        assert forked(lambda: other.value is other.value, deadline=20)
    finally:
        busy.released.set()
        thread.join()


def test_two_threads_get_the_same_value() -> None:
    slow, found = Slow(), []
    threads = [threading.Thread(target=lambda: found.append(slow.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    slow.begun.wait()
    slow.released.set()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]


def test_all_modules_use_it() -> None:
    package = Path(mdsx.__file__).parent
    users = {path for path in package.rglob("*.py") if "cached_property" in path.read_text(encoding="utf-8")}
    for path in users - {package / "base" / "cached.py"}:
        assert "from mdsx.base.cached import cached_property" in path.read_text(encoding="utf-8"), path
