"""What the consumer of one loader got, how long it waited for it, and what was counted on the way."""

from __future__ import annotations

from time import perf_counter

from mdsx.process import Counters


class Waiting:
    """Measures how long the consumer waits, as a context manager. Reading `seconds` includes the present wait."""

    __slots__ = ("_now",)

    def __init__(self) -> None:
        self._now: tuple[float, float | None] = 0.0, None  # one value, so that other threads read both at once

    def __enter__(self) -> None:
        self._now = self._now[0], perf_counter()

    def __exit__(self, *_: object) -> None:
        before, since = self._now
        if since is not None:
            self._now = before + perf_counter() - since, None

    @property
    def seconds(self) -> float:
        before, since = self._now
        return before if since is None else before + perf_counter() - since


class Meter:
    """The totals of one loader. Its batches are counted when they are handed out."""

    def __init__(self) -> None:
        self.waiting = Waiting()
        self.counters = Counters()  # of this process
        self.batches = 0
        self.samples = 0
        self.skipped = 0
        self.first_skipped: tuple[str, ...] = ()
        self._began: float | None = None

    def begin(self) -> None:
        """Start the clock, if this is the first pass."""
        if self._began is None:
            self._began = perf_counter()

    @property
    def seconds(self) -> float:
        """Return the seconds since the first pass began."""
        return 0.0 if self._began is None else perf_counter() - self._began
