"""What code that reads ahead needs of its process: the time, a condition to wait for, and threads.

`THREADS` are the real ones. A simulation has others, with a clock of its own, and so runs the very same code.
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
    """A lock, and a wait for others that change what it guards: as `threading.Condition`."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Crew(Protocol):
    """One user's share of the threads of a kind: as `Share`."""

    @property
    def may_begin(self) -> bool: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any) -> object: ...
    def map(self, fn: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]: ...
    def shutdown(self, wait: bool = True) -> None: ...


class Scheduler(Protocol):
    """The time and the threads of one process."""

    def now(self) -> float:
        """Return seconds of a clock that only advances."""

    def condition(self) -> Condition: ...

    def crew(self, kind: Kind, *, iteration: bool = False) -> Crew:
        """Return a share of the threads of `kind`; `iteration`: its user reads a dataset in order."""


class _Threads:
    """The clock and the threads of this process."""

    def now(self) -> float:
        return time.monotonic()

    def condition(self) -> Condition:
        return threading.Condition()

    def crew(self, kind: Kind, *, iteration: bool = False) -> Crew:
        return Share(kind, iteration=iteration)


THREADS: Scheduler = _Threads()
