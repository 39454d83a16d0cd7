"""Random parts of pictures: the same on every machine, within the picture, and spread as RandomResizedCrop's."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.decoding.boxes import covering_box, random_box

SIDES = st.integers(1, 20_000)
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def test_the_boxes_of_these_seeds_never_change() -> None:
    found = [random_box(500, 375, SCALE, RATIO, seed) for seed in (0, 1, 2**64 - 1)]
    assert found == [(49, 4, 417, 284), (161, 67, 443, 345), (73, 1, 345, 288)]
    assert random_box(10_000, 30, (1.0, 1.0), RATIO, 5) == (4980, 0, 5020, 30)  # the widest part that fits


@given(SIDES, SIDES, st.integers(0, 2**64 - 1))
def test_a_random_box_is_within_the_picture(width: int, height: int, seed: int) -> None:
    left, top, right, bottom = random_box(width, height, SCALE, RATIO, seed)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


def test_boxes_are_spread_as_those_of_random_resized_crop() -> None:
    width, height, count = 4000, 3000, 6000
    boxes = np.array([random_box(width, height, SCALE, RATIO, seed) for seed in range(count)])
    reference = np.array([drawn(np.random.default_rng(seed), width, height) for seed in range(count)])
    for found, expected in zip(described(boxes, width, height), described(reference, width, height), strict=True):
        places = np.linspace(0.05, 0.95, 10)
        np.testing.assert_allclose(np.quantile(found, places), np.quantile(expected, places), atol=0.04)
    assert described(boxes, width, height)[1].min() > -1.01
    assert described(boxes, width, height)[1].max() < 1.01


def drawn(random: np.random.Generator, width: int, height: int) -> tuple[int, int, int, int]:
    """Return a box as torchvision's RandomResizedCrop draws it."""
    while True:
        area = width * height * random.uniform(*SCALE)
        aspect = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if wide <= width and high <= height:
            left, top = int(random.integers(width - wide + 1)), int(random.integers(height - high + 1))
            return left, top, left + wide, top + high


def described(boxes: NDArray[np.int64], width: int, height: int) -> list[NDArray[np.float64]]:
    """Return the area of each box, its proportions from -1 to 1, and where it is, as shares of what is possible."""
    left, top, right, bottom = boxes.T
    wide, high = right - left, bottom - top
    places = [left / np.maximum(width - wide, 1), top / np.maximum(height - high, 1)]
    return [wide * high / (width * height), np.log(wide / high) / math.log(4 / 3), *places]


@given(SIDES, SIDES, st.integers(1, 1000), st.integers(1, 1000))
def test_a_covering_box_is_central_and_has_the_proportions(width: int, height: int, wide: int, high: int) -> None:
    left, top, right, bottom = covering_box(width, height, wide, high)
    tolerance = 1e-6 * max(width, height)
    assert -tolerance <= left < right <= width + tolerance
    assert -tolerance <= top < bottom <= height + tolerance
    across, down = (right - left) / wide, (bottom - top) / high
    assert abs(left + right - width) <= 1.001 * max(across, 1)
    assert abs(top + bottom - height) <= 1.001 * max(down, 1)
