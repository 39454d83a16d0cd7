"""Limit the requests per second that this process sends to a bucket with a rate limit (503 SlowDown, 429).

Many processes share such a limit without knowing of each other, so each one searches for its share, as TCP does: a
refused request cuts the rate to 70 %, an answered one raises it a little. A process with a low rate raises it less, so
that fewer than a fifth of its requests are refused, however many processes there are. There is no limit until the first
refusal, nor after a minute without one.

Requests of all threads take turns, at partly random intervals, so that processes that start together do not stay in
step.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque

from mdsx.base.process import at_fork
from mdsx.secret import redacted

_CUT = 0.7
_RISE = 0.2  # requests a second, for each answer
_LOW = 3.0  # requests a second, below which the rise is proportional to the rate
_LEAST = 0.2  # requests a second
_AT_FIRST = 5.0  # the least after the first refusal
_FORGET = 60.0  # seconds without a refusal after which there is no limit
_LATE = 0.5  # seconds that a turn may be late without delaying the next one
_RECENT = 1.0  # seconds over which requests are counted while there is no limit
_COUNTED = 1024

_log = logging.getLogger("mdsx")


class Throttle:
    """The turns of this process's requests to one bucket."""

    def __init__(self, name: str) -> None:
        self.answered_at = -math.inf
        """When a request was last answered, by the monotonic clock."""
        self._name = name
        self._rate: float | None = None  # requests a second
        self._turns = threading.Lock()  # held by the thread whose turn is next
        self._lock = threading.Lock()
        self._next = self._cut_at = 0.0
        self._sent: deque[float] = deque(maxlen=_COUNTED)

    def turn(self) -> float:
        """Wait until the next request may be sent. Return when that is, by the monotonic clock."""
        if self._rate is not None:
            with self._turns:
                if (rate := self._rate) is not None:
                    pause(max(self._next - time.monotonic(), 0.0))
                    self._next = max(self._next, time.monotonic() - _LATE) + random.uniform(0.5, 1.5) / rate
        now = time.monotonic()
        self._sent.append(now)
        return now

    def answered(self) -> None:
        """Note that the server answered a request."""
        now = self.answered_at = time.monotonic()
        if self._rate is None:
            return
        with self._lock:
            if (rate := self._rate) is not None:
                self._rate = rate + _RISE * min(rate / _LOW, 1.0) if now - self._cut_at < _FORGET else None

    def refused(self, sent: float) -> None:
        """Note that the server refused a request, sent at the time `sent`, because there are too many."""
        with self._lock:
            now, rate = time.monotonic(), self._rate
            if rate is None:
                recent = sum(at > now - _RECENT for at in tuple(self._sent))
                rate = max(recent * _CUT, _AT_FIRST)
                _log.info(
                    "%s limits requests; this process now sends %.0f a second, and adjusts to the limit",
                    redacted(self._name),
                    rate,
                )
            elif sent >= self._cut_at:  # ignore refusals of requests from before the last cut
                rate = max(rate * _CUT, _LEAST)
            else:
                return
            self._rate, self._cut_at = rate, now


def pause(seconds: float) -> None:
    time.sleep(seconds)


_throttles: dict[str, Throttle] = {}


def throttle(name: str) -> Throttle:
    """Return this process's only throttle of this name. A forked child begins without a limit."""
    found = _throttles.get(name)
    return _throttles.setdefault(name, Throttle(name)) if found is None else found


at_fork(after_in_child=_throttles.clear)
