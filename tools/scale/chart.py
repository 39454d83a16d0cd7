"""A chart of how a cost grows: processor seconds and bytes by size, each relative to its first value, on logarithmic
scales."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tools.pictures import picture

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 300, 64, 120, 16, 48
_LINES = (("CPU", "#1668b8", ""), ("memory", "#b85c16", ""), ("as the size", "#999", ' stroke-dasharray="5 4"'))


def chart(name: str, points: Sequence[tuple[int, float, float]]) -> str:
    """Return the chart as SVG. `points`: a size, its seconds and its bytes."""
    sizes = [size for size, *_ in points]
    columns = list(zip(*points, strict=True))[1:]
    series = [[value / column[0] for value in column] for column in columns] + [[size / sizes[0] for size in sizes]]
    most, least = max(map(max, series)), min(1.0, *map(min, series))

    def x(size: float) -> float:
        return _LEFT + _share(size, sizes[0], sizes[-1]) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - _share(value, least, most) * (_HEIGHT - _TOP - _BOTTOM)

    below = f'y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle"'
    drawn = [f'<text x="{x(size):.1f}" {below}>{size:,}</text>' for size in sizes]
    for power in range(math.ceil(math.log10(least)), math.floor(math.log10(most)) + 1):
        at = f"{y(10**power):.1f}"
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{at}" dy="4" text-anchor="end">{10**power:,} x</text>')
    for values, (label, colour, style) in zip(series, _LINES, strict=True):
        line = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in zip(sizes, values, strict=True))
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{style}/>')
        end = f'x="{_WIDTH - _RIGHT + 8}" y="{y(values[-1]):.1f}"'
        drawn.append(f'<text {end} dy="4" fill="{colour}">{label}</text>')
    drawn.append(f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{name}</text>')
    return picture(_WIDTH, _HEIGHT, drawn)


def _share(value: float, first: float, last: float) -> float:
    return math.log(value / first) / math.log(last / first) if last > first else 0.0
