"""Count what one loader returned, how long its consumer waited, and how many samples on_error="skip" left out."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from time import perf_counter

from mdsx.base.process import Counters
from mdsx.errors import SkippedError, UsageError, shown

_AT_LEAST = 1000  # samples over which a share is taken at least, so that a few early failures do not stop a run
_NAMED = 3  # samples that the error names


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
    """The totals of one loader. A batch counts when the loader returns it."""

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


def checked_share(max_skipped: object, on_error: str) -> float | None:
    """Return the share of samples that may be left out. Raise UsageError for another value."""
    if max_skipped is None:
        return None
    if on_error != "skip":
        raise UsageError("max_skipped needs on_error='skip'", found=f"on_error={on_error!r}")
    if isinstance(max_skipped, bool) or not isinstance(max_skipped, Real) or not 0 <= float(max_skipped) <= 1:
        raise UsageError("max_skipped must be a share from 0 to 1", found=shown(max_skipped))
    return float(max_skipped)


def check_skipped(most: float | None, meter: Meter, read: int, lines: Sequence[str]) -> None:
    """Raise SkippedError if a batch of `read` samples brings the share of samples left out above `most`.

    `lines` name the samples that the batch lacks; the meter keeps the first of them.
    """
    first = (*meter.first_skipped, *lines)[:_NAMED]
    skipped, total = meter.skipped + len(lines), meter.samples + meter.skipped + read
    if most is not None and skipped > most * max(total, _AT_LEAST):
        raise SkippedError(
            "too many samples failed and were left out",
            found=f"{skipped:,} of the {total:,} read on this rank; the first: {'; '.join(first)}",
            expected=f"at most {most:g} of them, or of {_AT_LEAST:,}",
            hint="repair the dataset (mdsx verify lists the damage), correct the transform, or give the loader a "
            "larger max_skipped",
        )
    meter.first_skipped = first  # not of a batch that failed: its retry names them again
