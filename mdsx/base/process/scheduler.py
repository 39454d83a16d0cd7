"""What read-ahead code needs from its process: the time, conditions to wait for, and threads.

`THREADS` is the real scheduler. A simulation passes another one with a simulated clock, and so runs the same code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, TypeVar

from mdsx.base.process.threads import Kind, Share

A = TypeVar("A")
B = TypeVar("B")


class Condition(Protocol):
    """The part of `threading.Condition` that is used."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class ThreadShare(Protocol):
    """One user's share of the threads of a kind: the part of `Share` that is used."""

    @property
    def may_begin(self) -> bool: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any) -> object: ...
    def map(self, fn: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]: ...
    def shutdown(self, wait: bool = True) -> None: ...


class Scheduler(Protocol):
    """The time and the threads of one process."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""

    def condition(self) -> Condition: ...

    def share(self, kind: Kind, *, iteration: bool = False) -> ThreadShare:
        """Return a share of the threads of `kind`; `iteration`: its user reads a dataset in order."""


class _Threads:
    """The clock and the threads of this process."""

    def now(self) -> float:
        return time.monotonic()

    def condition(self) -> Condition:
        return threading.Condition()

    def share(self, kind: Kind, *, iteration: bool = False) -> ThreadShare:
        return Share(kind, iteration=iteration)


THREADS: Scheduler = _Threads()
