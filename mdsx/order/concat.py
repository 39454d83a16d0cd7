"""Groups of kind concat: concatenate the samples of each lane of a window, and cut them into rows of exactly L values.

Put the values of all lanes on one line: first the complete rows of each lane, lane by lane, then the rest of each lane.
The line has no gaps, so row r has the values from r*L on, and only the last row may be shorter. A *stretch* is the part
of a sample in either section of the line. Cut at each multiple of L, it becomes items.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order.sorting import stable_order
from mdsx.order.window_groups import WindowGroups

MAX_ROWS = 2**31
"""Rows of a lane in a window."""
_MAX_VALUES = 2**62  # of a window


def concatenate(
    lengths: NDArray[np.int64], lanes: NDArray[np.int64], capacity: int, lane_count: int, *, place: str
) -> WindowGroups:
    """Return the rows of `capacity` values of a window, from the length and the lane of each of its samples. The rows
    of a lane are ordered by number.

    Raises:
        UsageError: A lane has more than 2^31 rows; `place` is named.
    """
    if (values := float(lengths.sum(dtype=np.float64))) >= _MAX_VALUES:
        raise _too_large(place, int(values / capacity))
    order = stable_order(lanes, lane_count)
    lanes, sizes = lanes[order], lengths[order]
    ends = np.cumsum(sizes)
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(lanes, minlength=lane_count))])
    bounds = np.concatenate([np.zeros(1, np.int64), ends])[edges]
    own = np.diff(bounds) // capacity  # complete rows of each lane
    if int(own.max()) >= MAX_ROWS - lane_count:  # the rest makes at most one row for each lane
        raise _too_large(place, int(own.max()))

    begins = ends - sizes  # on a line of all values, with the rest of each lane after its complete rows
    whole = (bounds[:-1] + own * capacity)[lanes]
    last = np.where(sizes > 0, begins, begins - 1)  # a sample without values is at the value before it
    has_own = (last < whole) & (own[lanes] > 0)
    has_left = ~has_own | (ends > whole)
    of_own, of_left = np.flatnonzero(has_own), np.flatnonzero(has_left)
    skipped = np.maximum(whole - begins, 0)  # the number of each sample's values in complete rows of its lane
    np.minimum(skipped, sizes, out=skipped)

    samples = np.concatenate([of_own, of_left])
    firsts = np.concatenate([np.zeros(len(of_own), np.int64), skipped[of_left]])
    counts = np.concatenate([skipped[of_own], (sizes - skipped)[of_left]])
    stops = np.cumsum(counts)  # the end of each stretch on the line
    starts = stops - counts
    rows = int(own.sum())
    least = np.concatenate([(np.cumsum(own) - own)[lanes[of_own]], np.full(len(of_left), rows)])
    row = np.maximum((starts - (counts == 0)) // capacity, least)  # in which the stretch begins
    pieces = np.maximum(stops - 1, starts) // capacity - starts // capacity + 1

    stretch = np.repeat(np.arange(len(samples)), pieces)
    number = np.arange(len(stretch)) - (np.cumsum(pieces) - pieces)[stretch]
    row = row[stretch] + number
    begin = np.maximum(starts[stretch], row * capacity)
    size = np.minimum(stops[stretch], (row + 1) * capacity) - begin
    first = firsts[stretch] + begin - starts[stretch]
    row_edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(row))])
    row_lanes = np.concatenate([np.repeat(np.arange(lane_count), own), lanes[samples[stretch[row_edges[rows:-1]]]]])
    return WindowGroups(row_lanes, row_edges, order[samples[stretch]], first, size)


def _too_large(place: str, rows: int) -> UsageError:
    return UsageError(
        "a window has too many rows in a lane",
        place=place,
        found=rows,
        expected=f"at most {MAX_ROWS}",
        hint="give a smaller window, or a larger capacity",
    )
