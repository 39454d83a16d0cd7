"""Writes the marked parts of docs/benchmarks.md and README.md, and their pictures: bar charts of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.report import Report
from tools.bench.subject import Contestant, Subject, number
from tools.processes import ROOT
from tools.tables import put_between_marks
from tools.workloads import SIZES

_PICTURES = {
    "benchmarks-loader": ("The shuffled loader", ("loader-*-32",)),
    "benchmarks-random": ("Random access", ("random*",)),
    "benchmarks-iterate": ("Sample by sample", ("sequential-*", "shuffled-*")),
    "benchmarks-write": ("Writing", ("write-*",)),
}
_SHORT = ("loader-{}-32", "random-{}", "write-{}")  # README's lines
_COLOURS = {"mdsx": "#2f7fc1", "peer": "#b9bec5", "limit": "#e8e3d3"}
_COLUMNS = 2
_SHOWN = 3  # a limit of the machine is drawn if it is at most this many times the longest other bar


def write_pages(report: Report, root: Path = ROOT) -> None:
    """Replace the text between the marks, and each picture for which a subject was measured."""
    pictures = []
    for name, (title, patterns) in _PICTURES.items():
        found = [each for pattern in patterns for each in report.subjects if fnmatch(each.name, pattern)]
        subjects = [each for each in found if _shown(each)]
        if subjects:
            draw(root / "docs" / f"{name}.png", subjects)
            pictures.append(f"![{title}]({name}.png)\n")
    page = root / "docs" / "benchmarks.md"
    put_between_marks(page, "bench", "about", report.about())
    put_between_marks(page, "bench", "goals", report.goals())
    put_between_marks(page, "bench", "tables", report.markdown())
    put_between_marks(page, "bench", "pictures", "\n".join(pictures))
    chart = next(iter(pictures), "").replace("](", "](docs/")
    short = report.summary([each.format(workload) for each in _SHORT for workload in SIZES])
    put_between_marks(root / "README.md", "bench", "summary", f"{chart}\n{short}")


def draw(path: Path, subjects: Sequence[Subject]) -> None:
    """Draw a panel for each subject and a bar for each contestant, with its spread across the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(_COLUMNS, len(subjects))
    rows = -(-len(subjects) // columns)
    size = (6.2 * columns, (0.6 + 0.24 * max(len(_shown(subject)) for subject in subjects)) * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axes, subject in zip_longest(grid.flat, subjects):
        if subject is None:
            axes.set_visible(False)
        else:
            _panel(axes, subject)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _panel(axes: Any, subject: Subject) -> None:
    lines = _shown(subject)
    values = [line.values(subject.figure) for line in lines]
    medians = [median(each) for each in values]
    below = [middle - min(each) for middle, each in zip(medians, values, strict=True)]
    above = [max(each) - middle for middle, each in zip(medians, values, strict=True)]
    colours = [_COLOURS[line.kind] for line in lines]
    names = [line.name for line in lines]
    axes.barh(names, medians, color=colours, xerr=(below, above), error_kw={"ecolor": "#555555", "lw": 0.8})
    for place, middle in enumerate(medians):
        axes.annotate(number(middle), (middle, place), (4, 6), textcoords="offset points", fontsize=7)
    axes.tick_params("y", labelsize=7.5)
    axes.invert_yaxis()
    axes.set_title(f"{subject.title} ({subject.unit or subject.figure})", fontsize=9, loc="left")
    axes.set_xticks([])
    axes.margins(x=0.15)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _shown(subject: Subject) -> list[Contestant]:
    lines = [(line, value) for line in subject.contestants if (value := line.median(subject.figure)) is not None]
    longest = max((value for line, value in lines if line.kind != "limit"), default=0.0)
    return [line for line, value in lines if line.kind != "limit" or value <= _SHOWN * longest]
