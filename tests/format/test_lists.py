"""Arrays as nested lists."""

from __future__ import annotations

import numpy as np
import pytest

from mdsx.format import as_lists
from mdsx.format.inputs import Refused


def test_arrays_become_lists_and_scalars_numbers() -> None:
    assert as_lists(np.arange(6).reshape(2, 3)) == [[0, 1, 2], [3, 4, 5]]
    assert as_lists(np.float32(0.5)) == 0.5


def test_an_array_without_items_becomes_at_most_1000_lists() -> None:
    assert as_lists(np.zeros((10, 100, 0, 30_000))) == [[[]] * 100] * 10
    assert as_lists(np.zeros((0, 30_000))) == []
    with pytest.raises(Refused, match=r"at most 1,000 lists for an array without items.*shape \[7, 143, 0\]"):
        as_lists(np.zeros((7, 143, 0)))
