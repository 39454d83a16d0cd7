"""Another try of a request that failed for now: when, how often, for how long.

The pauses grow from 0.1 to 12.8 seconds, half of each by chance. After 8 tries (some 20 seconds of pauses), or where
two minutes have passed without progress, the failure becomes an error that says so. There is one layer of this: the
libraries below try nothing again.

A failure that another try rarely mends (an unknown host, a refused connection, TLS, a bucket that does not exist) is
an error much sooner where the endpoint or the bucket never answered before: it is a mistake then, not an outage.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from mdsx.errors import MdsxError

TRIES = 8
PATIENCE = 120.0  # seconds
FIRST_CONTACT = 0.5
_FIRST_PAUSES = 4  # they grow up to this one

T = TypeVar("T")


class TransientError(Exception):
    """What may be over with another try, and the error that it becomes where it is not.

    `lasting`: the endpoint, or the bucket, is not there; another try rarely mends that, unless it was there before.
    """

    def __init__(
        self,
        kind: type[MdsxError],
        message: str,
        lasting: Literal["endpoint", "bucket"] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.kind, self.lasting = kind, lasting
        self._message, self._fields = message, fields

    def final(self, told: str = "") -> MdsxError:
        """The error, with how often it was tried."""
        return self.kind(f"{self._message}; {told}" if told else self._message, **self._fields)


Limit = Callable[[TransientError], float | None]
"""For how many seconds a failure is worth another try: None for as long as any."""


class Tries:
    """The tries of one request."""

    def __init__(self, limit: Limit = lambda failure: None) -> None:
        self._failures = 0
        self._since = time.monotonic()
        self._limit = limit

    def progressed(self) -> None:
        """What was tried came a good deal further: it has its tries anew."""
        self._failures, self._since = 0, time.monotonic()

    def failed(self, failure: TransientError) -> None:
        """Pause before the next try; raise the error of `failure` where there were enough."""
        self._failures += 1
        limit = self._limit(failure)
        seconds = time.monotonic() - self._since
        if limit is not None:
            pauses = min(self._failures, _FIRST_PAUSES)
            if seconds + _longest(pauses) <= limit:
                pause(pauses)
                return
            tries = "1 try" if self._failures == 1 else f"{self._failures} tries in {seconds:.0f} s"
            raise failure.final(f"{tries}, on first contact") from failure.__cause__
        if self._failures >= TRIES or seconds >= PATIENCE:
            raise failure.final(f"given up after {self._failures} tries in {seconds:.0f} s") from failure.__cause__
        pause(self._failures)


def tried(attempt: Callable[[], T], limit: Limit = lambda failure: None) -> T:
    """What `attempt` returns, which raises TransientError where another try may help."""
    tries = Tries(limit)
    while True:
        try:
            return attempt()
        except TransientError as failure:
            tries.failed(failure)


def pause(failures: int) -> None:
    time.sleep(random.uniform(0.5, 1) * _longest(failures))


def _longest(failures: int) -> float:
    """Seconds."""
    return 0.1 * float(2**failures)
