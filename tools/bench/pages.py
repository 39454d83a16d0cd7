"""Writes the marked parts of docs/benchmarks.md and README.md, and their pictures: bar charts of the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.bench.report import Line, Outcome, Report, number
from tools.processes import ROOT
from tools.tables import put_between_marks

_PICTURES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "benchmarks-loader": ("The shuffled loader", lambda name: name.startswith("loader-") and name.endswith("-32")),
    "benchmarks-random": ("Random access", lambda name: name.startswith("random")),
    "benchmarks-iterate": ("Sample by sample", lambda name: name.startswith(("sequential-", "shuffled-"))),
    "benchmarks-write": ("Writing", lambda name: name.startswith("write-")),
}
_SHORT = ("loader-{}-32", "random-{}", "write-{}")  # README's lines
_WORKLOADS = ("tokens", "images", "text", "mixed")
_COLOURS = {"mdsx": "#2f7fc1", "peer": "#b9bec5", "limit": "#e8e3d3"}
_COLUMNS = 2
_SHOWN = 3  # a limit of the machine is drawn if it is at most this many times the longest other bar


def write_pages(report: Report, root: Path = ROOT) -> None:
    """Replace the text between the marks, and each picture for which a subject was measured."""
    page = root / "docs" / "benchmarks.md"
    pictures = []
    for name, (title, wanted) in _PICTURES.items():
        outcomes = [each for each in report.outcomes if wanted(each.subject.name) and _shown(each)]
        if outcomes:
            draw(root / "docs" / f"{name}.png", outcomes)
            pictures.append(f"![{title}]({name}.png)\n")
    short = [pattern.format(workload) for pattern in _SHORT for workload in _WORKLOADS]
    chart = next(iter(pictures), "").replace("](", "](docs/")
    put_between_marks(page, "bench", "about", report.about())
    put_between_marks(page, "bench", "goals", report.goals())
    put_between_marks(page, "bench", "tables", report.markdown())
    put_between_marks(page, "bench", "pictures", "\n".join(pictures))
    put_between_marks(root / "README.md", "bench", "summary", f"{chart}\n{report.summary(short)}")


def draw(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Draw a panel for each subject and a bar for each contestant, with its spread across the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(_COLUMNS, len(outcomes))
    rows = -(-len(outcomes) // _COLUMNS)
    size = (6.2 * columns, (0.6 + 0.24 * max(len(_shown(outcome)) for outcome in outcomes)) * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    panels = list(grid.flat)
    for axes, outcome in zip(panels, outcomes, strict=False):
        _panel(axes, outcome)
    for axes in panels[len(outcomes) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _panel(axes: Any, outcome: Outcome) -> None:
    name, lines = outcome.subject.figure, _shown(outcome)
    medians = [line.median(name) or 0.0 for line in lines]
    below = [median - min(line.values(name)) for median, line in zip(medians, lines, strict=True)]
    above = [max(line.values(name)) - median for median, line in zip(medians, lines, strict=True)]
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
