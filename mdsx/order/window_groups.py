"""The form in which each kind of groups returns those of a window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class WindowGroups(NamedTuple):
    """Groups of a window. Group g has items `edges[g]` up to `edges[g + 1]`, in lane order. With kind "concat", a row
    may have items of several lanes, in ascending order of lanes."""

    lanes: NDArray[np.int64]  # [G]
    edges: NDArray[np.int64]  # [G + 1]
    items: NDArray[np.int64]  # [m]: the index of the sample among the window's samples, by position
    firsts: NDArray[np.int64]  # [m]: the item's first value in its sample: 0 unless the sample is split
    sizes: NDArray[np.int64]  # [m]: the number of the sample's values in the group
