"""The tables as bar charts: a panel for each subject, a bar for each contestant, its spread across the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.report import number
from tools.bench.run import Line, Outcome

_COLOURS = {"mdsx": "#2f7fc1", "peer": "#b9bec5", "limit": "#e8e3d3"}
_COLUMNS = 2
_SHOWN = 3  # a limit of the machine is drawn if it is at most so many times the longest other bar


def draw(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the picture to `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(outcomes) // _COLUMNS)
    most = max(len(_shown(outcome)) for outcome in outcomes)
    size = (6.2 * min(_COLUMNS, len(outcomes)), (0.6 + 0.24 * most) * rows)
    figure, grid = pyplot.subplots(
        rows, min(_COLUMNS, len(outcomes)), figsize=size, layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    for axes, outcome in zip(panels, outcomes, strict=False):
        _panel(axes, outcome)
    for axes in panels[len(outcomes) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _panel(axes: Any, outcome: Outcome) -> None:
    name = outcome.subject.figure
    lines = _shown(outcome)
    medians = [line.median(name) or 0.0 for line in lines]
    spreads = [(min(line.values(name)), max(line.values(name))) for line in lines]
    below = [median - low for median, (low, _) in zip(medians, spreads, strict=True)]
    above = [high - median for median, (_, high) in zip(medians, spreads, strict=True)]
    places = range(len(lines))
    colours = [_COLOURS[line.contestant.kind] for line in lines]
    axes.barh(places, medians, color=colours, xerr=(below, above), error_kw={"ecolor": "#555555", "lw": 0.8})
    axes.set_yticks(places, [line.contestant.name for line in lines], fontsize=7.5)
    axes.invert_yaxis()
    for place, median in zip(places, medians, strict=True):
        axes.annotate(number(median), (max(median, 0.0), place), (4, 6), textcoords="offset points", fontsize=7)
    axes.set_title(f"{outcome.subject.title} ({outcome.subject.unit})", fontsize=9, loc="left")
    axes.set_xticks([])
    axes.margins(x=0.15)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _shown(outcome: Outcome) -> list[Line]:
    name = outcome.subject.figure
    lines = [(line, value) for line in outcome.lines if (value := line.median(name)) is not None]
    longest = max((value for line, value in lines if line.contestant.kind != "limit"), default=0.0)
    return [line for line, value in lines if line.contestant.kind != "limit" or value <= _SHOWN * longest]
