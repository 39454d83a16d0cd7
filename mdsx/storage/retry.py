"""Another try of a request that failed for now: when, how often, for how long.

The pauses grow from 0.1 to 12.8 seconds, half of each by chance. After 8 tries (some 20 seconds of pauses), or where
two minutes have passed without progress, the failure becomes an error that says so. There is one layer of this: the
libraries below try nothing again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from mdsx.errors import MdsxError

TRIES = 8
PATIENCE = 120.0  # seconds

T = TypeVar("T")


class TransientError(Exception):
    """What may be over with another try, and the error that it becomes where it is not."""

    def __init__(self, kind: type[MdsxError], message: str, **fields: Any) -> None:
        super().__init__(message)
        self._kind, self._message, self._fields = kind, message, fields

    def final(self, told: str) -> MdsxError:
        return self._kind(f"{self._message}; {told}", **self._fields)


class Tries:
    """The tries of one request."""

    def __init__(self) -> None:
        self._failures = 0
        self._since = time.monotonic()

    def progressed(self) -> None:
        """What was tried came a good deal further: it has its tries anew."""
        self._failures, self._since = 0, time.monotonic()

    def failed(self, failure: TransientError) -> None:
        """Pause before the next try; raise the error of `failure` where there were enough."""
        self._failures += 1
        seconds = time.monotonic() - self._since
        if self._failures >= TRIES or seconds >= PATIENCE:
            raise failure.final(f"given up after {self._failures} tries in {seconds:.0f} s") from failure.__cause__
        pause(self._failures)


def tried(attempt: Callable[[], T]) -> T:
    """What `attempt` returns, which raises TransientError where another try may help."""
    tries = Tries()
    while True:
        try:
            return attempt()
        except TransientError as failure:
            tries.failed(failure)


def pause(failures: int) -> None:
    time.sleep(random.uniform(0.5, 1) * 0.1 * 2**failures)
