"""How many samples on_error="skip" may leave out of a run."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

from mdsx.errors import SkippedError, UsageError, shown
from mdsx.stream.meter import Meter

_AT_LEAST = 1000  # samples that a share is of, so that a few at the start are no reason to stop
_NAMED = 3  # samples that the error names


def checked_share(max_skipped: object, on_error: str) -> float | None:
    """Return the share of samples that may be left out. Raise UsageError for another value."""
    if max_skipped is None:
        return None
    if on_error != "skip":
        raise UsageError("max_skipped needs on_error='skip'", found=f"on_error={on_error!r}")
    if isinstance(max_skipped, bool) or not isinstance(max_skipped, Real) or not 0 <= float(max_skipped) <= 1:
        raise UsageError("max_skipped must be a share, from 0 to 1", found=shown(max_skipped))
    return float(max_skipped)


def check_skipped(most: float | None, meter: Meter, read: int, lines: Sequence[str]) -> None:
    """Raise SkippedError if a loader may leave out a share of `most`, and more are with this batch of `read` samples.

    `lines` say which samples the batch lacks; the meter keeps the first of them."""
    meter.first_skipped = (*meter.first_skipped, *lines)[:_NAMED]
    if most is None:
        return
    skipped, total = meter.skipped + len(lines), meter.samples + meter.skipped + read
    if skipped > most * max(total, _AT_LEAST):
        raise SkippedError(
            "too many samples failed and were left out",
            found=f"{skipped:,} of the {total:,} read on this rank; the first: {'; '.join(meter.first_skipped)}",
            expected=f"at most {most:g} of them, or of {_AT_LEAST:,}",
            hint="repair the dataset (mdsx verify says what is damaged), correct the transform, or give the loader a "
            "larger max_skipped",
        )
