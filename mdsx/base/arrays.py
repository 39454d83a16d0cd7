"""Arrays of what users give."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_array(given: object) -> NDArray[Any]:
    """Return `given` as an array. If it cannot be one, return one of text and without dimensions, which the caller
    refuses."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, a tensor on the meta device
        return np.asarray("")
