"""Counters of worker processes: a row of shared memory for each worker."""

from __future__ import annotations

from typing import NamedTuple

from mdsx.base.process import Counter, Counters
from mdsx.base.work.memory import SharedNumbers

_WIDTH = len(Counter)


class Rows:
    """`count` rows of totals."""

    def __init__(self, count: int) -> None:
        self._shared = SharedNumbers(count * _WIDTH)

    def row(self, number: int) -> Counters:
        """Return the totals of a worker."""
        return Counters(self._shared.values[number * _WIDTH : (number + 1) * _WIDTH])

    @property
    def totals(self) -> list[int]:
        """Return the sum of all rows."""
        values = self._shared.values.tolist()
        return [sum(values[place::_WIDTH]) for place in range(_WIDTH)]


class Counted(NamedTuple):
    """The totals of workers that ended, and the rows of those that are running.

    It is replaced as a whole, so that a reading thread counts nothing twice."""

    ended: tuple[int, ...] = (0,) * _WIDTH
    rows: Rows | None = None

    def then(self, rows: Rows | None = None) -> Counted:
        """Return a value in which the present workers have ended, and new ones count in `rows`."""
        ended = list(self.totals)
        ended[Counter.IN_FLIGHT] = 0  # killed workers did not count it down
        return Counted(tuple(ended), rows)

    @property
    def totals(self) -> tuple[int, ...]:
        if self.rows is None:
            return self.ended
        return tuple(map(sum, zip(self.ended, self.rows.totals, strict=True)))
