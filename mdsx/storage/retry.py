"""Retry requests after transient failures: when, how often, and for how long.

Pauses grow from 0.1 to 12.8 seconds, half of each at random. After 8 tries (some 20 seconds of pauses), or two minutes
without progress, the failure becomes an error that says so. A try counts for half a minute at most: one that lasts
longer transfers data, such as an upload over a slow link, since a socket that stalls fails sooner. If a server says how
long to wait (Retry-After, rate limits), the request waits that long instead. This is the only layer that retries.

A server that limits requests (503 SlowDown) refuses some and answers others. So a refusal does not count while other
requests of this process are answered, for up to ten minutes. throttle.py limits how many requests are sent then.

A retry rarely cures some failures: an unknown host, a refused connection, TLS, a bucket that does not exist. If the
endpoint or the bucket has never answered before, such a failure is most likely a mistake, so it becomes an error much
sooner. If it has answered before, it is most likely an outage. A forked child inherits this knowledge. A spawned one
gets it from its parent (`answered`, `believe`), or with a storage that it unpickles.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from mdsx.base.process import Counter, count
from mdsx.errors import MdsxError
from mdsx.secret import redacted

TRIES = 8
PATIENCE = 120.0  # seconds
_OF_A_TRY = 30.0  # seconds of a try that count
OBEDIENCE = 600.0  # total seconds that a request waits because its server asks for it
FIRST_CONTACT = 0.5
_FIRST_PAUSES = 4  # on first contact, pauses stop growing here

T = TypeVar("T")

_log = logging.getLogger("mdsx")


class TransientError(Exception):
    """A failure that a retry may cure, and the error to raise if it does not.

    `lasting`: the endpoint or the bucket does not exist. A retry rarely cures that, unless it existed before. `after`:
    the seconds that the server asks to wait before the next request. `limited`: the server refused the request because
    there are too many.
    """

    answered_at = -math.inf
    """When the server last answered another request of this process, by the monotonic clock."""

    def __init__(
        self,
        kind: type[MdsxError],
        message: str,
        lasting: Literal["endpoint", "bucket"] | None = None,
        *,
        after: float | None = None,
        limited: bool = False,
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.kind, self.lasting, self.after, self.limited = kind, lasting, after, limited
        self._message, self._fields = message, fields

    def final(self, tries: str = "") -> MdsxError:
        """Return the error to raise. `tries`: how often the request was tried, as text."""
        return self.kind(f"{self._message}; {tries}" if tries else self._message, **self._fields)


Limit = Callable[[TransientError], float | None]
"""Returns how many seconds to retry after a failure; None for the default."""


class Tries:
    """The tries of one request."""

    def __init__(self, limit: Limit = lambda failure: None) -> None:
        self._failures, self._spent = 0, 0.0
        self._began = self._failed_at = self._tried_at = time.monotonic()
        self._limit = limit
        self._obedience = OBEDIENCE

    def progressed(self) -> None:
        """Reset the count of tries: the request made good progress before it failed."""
        self._failures, self._spent = 0, 0.0

    def failed(self, failure: TransientError) -> None:
        """Pause before the next try. Raise the final error of `failure` after too many tries."""
        now = time.monotonic()
        self._spent += min(now - self._tried_at, _OF_A_TRY)
        if failure.after is not None and 1 <= failure.after <= self._obedience:
            self._obey(failure, failure.after)
            self._tried_at = time.monotonic()
            return
        if failure.limited and failure.answered_at > self._failed_at and now - self._began < OBEDIENCE:
            self.progressed()
        self._failed_at = now
        self._failures += 1
        limit, seconds = self._limit(failure), self._spent
        if limit is not None:
            pauses = min(self._failures, _FIRST_PAUSES)
            if seconds + _longest(pauses) <= limit:
                self._retry(failure, pauses)
                return
            tries = "1 try" if self._failures == 1 else f"{self._failures} tries in {seconds:.0f} s"
            raise failure.final(f"{tries}, on first contact") from failure.__cause__
        if self._failures >= TRIES or seconds >= PATIENCE:
            raise failure.final(f"given up after {self._failures} tries in {seconds:.0f} s") from failure.__cause__
        self._retry(failure, self._failures)

    def _retry(self, failure: TransientError, failures: int) -> None:
        count(Counter.RETRIES)
        _log.debug("retrying: %s", redacted(str(failure.final())))
        pause(failures)
        self._tried_at = time.monotonic()
        self._spent += self._tried_at - self._failed_at

    def _obey(self, failure: TransientError, seconds: float) -> None:
        """Wait as long as the server asks. This counts neither as a failure nor as a lack of progress."""
        _log.warning("%s; mdsx waits %.0f s, as the server asks", redacted(str(failure.final())), seconds)
        count(Counter.RETRIES)
        self._obedience -= seconds
        wait(seconds)


def tried(attempt: Callable[[], T], limit: Limit = lambda failure: None) -> T:
    """Return the result of `attempt`. Call it again after it raises TransientError."""
    tries = Tries(limit)
    while True:
        try:
            return attempt()
        except TransientError as failure:
            tries.failed(failure)


def wait(seconds: float) -> None:
    time.sleep(seconds + random.uniform(0, 0.1 * seconds))  # so that ranks do not retry at the same moment


def pause(failures: int) -> None:
    time.sleep(random.uniform(0.5, 1) * _longest(failures))


def _longest(failures: int) -> float:
    """Return the longest pause, in seconds."""
    return 0.1 * float(2**failures)


class Contact:
    """Whether an endpoint or a bucket has answered this process, or the process that it was forked from."""

    def __init__(self) -> None:
        self.answered = False
        self._lost_at: float | None = None

    def lost(self, problem: str) -> None:
        """Note that it no longer answers. Only the first call logs a line."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            _log.warning("%s; it answered before, so mdsx retries for some 20 seconds", redacted(problem))

    def found(self, name: str) -> None:
        """Note that it answered."""
        self.answered = True
        if self._lost_at is not None:
            seconds, self._lost_at = time.monotonic() - self._lost_at, None
            _log.warning("%s answers again, after %.0f s", redacted(name), seconds)


_contacts: dict[str, Contact] = {}


def contact(name: str) -> Contact:
    """Return this process's only contact of this name."""
    return _contacts.setdefault(name, Contact())


def answered() -> tuple[str, ...]:
    """Return the names of all contacts that have answered."""
    return tuple(name for name, known in list(_contacts.items()) if known.answered)


def believe(names: Iterable[str]) -> None:
    """Note that these contacts have answered another process."""
    for name in names:
        contact(name).answered = True
