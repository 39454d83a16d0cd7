"""The chart of the study: a line for each shuffle, from its lower bound to its upper bound."""

from __future__ import annotations

from collections.abc import Mapping

from tools.pictures import picture
from tools.training.setting import CONTROL, GOAL
from tools.training.statistics import Difference

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP, _BOTTOM = 760, 250, 40, 26, 16, 52
_STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # between lines of the grid
_MOST_LINES = 9


def chart(found: Mapping[str, Difference], default: str) -> str:
    """Return the chart as SVG. It leaves out the control, which would make the others too small to see."""
    shown = {name: one for name, one in found.items() if name != CONTROL}
    low = min(0.0, *(one.lower for one in shown.values()))
    high = max(GOAL, *(one.upper for one in shown.values()))
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_LINES), _STEPS[-1])
    first, last = int(low // step), int(-(-high // step))
    height = _TOP + _ROW * len(shown) + _BOTTOM

    def at(value: float) -> str:
        return f"{_LEFT + (value / step - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT):.1f}"

    floor = height - _BOTTOM
    drawn = list[str]()
    for number in range(first, last + 1):
        x = at(number * step)
        colour = "#555" if number == 0 else "#ddd"
        drawn.append(f'<line x1="{x}" x2="{x}" y1="{_TOP}" y2="{floor}" stroke="{colour}"/>')
        said = f"{number * step:+.2%}" if number else "0"
        drawn.append(f'<text x="{x}" y="{floor + 18}" text-anchor="middle">{said}</text>')
    goal = at(GOAL)
    drawn.append(f'<line x1="{goal}" x2="{goal}" y1="{_TOP}" y2="{floor}" stroke="#c33" stroke-dasharray="5 4"/>')
    for row, (name, one) in enumerate(shown.items()):
        y, colour = _TOP + _ROW * row + _ROW // 2, "#1668b8" if name == default else "#444"
        bold = ' font-weight="bold"' if name == default else ""
        drawn.append(f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end"{bold}>{name}</text>')
        ends = f'x1="{at(one.lower)}" x2="{at(one.upper)}" y1="{y}" y2="{y}"'
        drawn.append(f'<line {ends} stroke="{colour}" stroke-width="3"/>')
        drawn.append(f'<circle cx="{at(one.mean)}" cy="{y}" r="5" fill="{colour}"/>')
    title = f"loss over that of an exact shuffle, with 95 % bounds; dashed: the goal, {GOAL:+.1%}"
    drawn.append(f'<text x="{_WIDTH / 2:.0f}" y="{height - 12}" text-anchor="middle">{title}</text>')
    return picture(_WIDTH, height, drawn)
