"""Arrays as nested lists, which may cost far more than the stored bytes: an array of shape [30000000, 0] has no items,
but becomes 30 million lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mdsx.format.inputs import Refused

_MOST = 1000
"""The most lists that an array without items may become."""


def as_lists(value: Any) -> Any:
    """Return an array as nested lists, or a NumPy scalar as a number. Raise Refused for too many empty lists."""
    check_empty_lists(value.shape)
    return value.tolist()


def check_empty_lists(shape: Sequence[int]) -> None:
    """Raise Refused if an array of this shape has no items, but too many lists."""
    if 0 in shape and math.prod(shape[: shape.index(0)]) > _MOST:
        raise Refused(f"at most {_MOST:,} lists for an array without items", f"shape {list(shape)}")
