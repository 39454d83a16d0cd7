"""The part of a picture to resize: a box (left, top, right, bottom), in pixels from the upper left corner.

All arithmetic is exact or correctly rounded by IEEE 754, so every machine computes the same box.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TypeAlias

from mdsx.order import key

Box: TypeAlias = tuple[float, float, float, float]

_TRIES = 10
_BITS = 24  # of a random exponent


def covering_box(width: int, height: int, wide: int, high: int) -> Box:
    """Return the central part of a `width` x `height` picture that remains if it is resized to just cover
    `wide` x `high` and then cropped. For a square, this is torchvision's Resize(size) and CenterCrop(size)."""
    if width * high <= height * wide:
        scaled_width, scaled_height = wide, height * wide // width
    else:
        scaled_width, scaled_height = width * high // height, high
    left, top = round((scaled_width - wide) / 2), round((scaled_height - high) / 2)
    return (
        left * width / scaled_width,
        top * height / scaled_height,
        (left + wide) * width / scaled_width,
        (top + high) * height / scaled_height,
    )


def random_box(width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], seed: int) -> Box:
    """Return a random part, as torchvision's RandomResizedCrop: its area is uniform within `scale`, as a share of the
    picture's, and its aspect ratio (width / height) is log-uniform within `ratio`."""
    draws = (key(seed, number) for number in count())
    for _ in range(_TRIES):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * _unit(next(draws)))
        aspect = ratio[0] * _power(ratio[1] / ratio[0], next(draws) >> (64 - _BITS))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, top = _below(width - wide + 1, next(draws)), _below(height - high + 1, next(draws))
            return left, top, left + wide, top + high
    wide, high = width, height
    if width < height * ratio[0]:
        high = max(round(width / ratio[0]), 1)
    elif width > height * ratio[1]:
        wide = max(round(height * ratio[1]), 1)
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def _unit(drawn: int) -> float:
    """Return a number in [0, 1)."""
    return (drawn >> 11) * 2.0**-53


def _below(bound: int, drawn: int) -> int:
    """Return an integer in [0, bound)."""
    return drawn * bound >> 64


def _power(base: float, exponent: int) -> float:
    """Return `base` to the power of `exponent` / 2^24, by square roots: unlike `pow` and `exp`, they have the same last
    bits in all C libraries."""
    found, root = 1.0, base
    for place in reversed(range(_BITS)):
        root = math.sqrt(root)
        if exponent >> place & 1:
            found *= root
    return found
