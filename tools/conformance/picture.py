"""The matrix as a heat map: a column for each loader, a line for each cell, a colour for each kind of result."""

from __future__ import annotations

from pathlib import Path

from tools.conformance.report import Report

_COLOURS = {
    "exact": "#7bc47f",
    "order": "#f2d16b",
    "inexact": "#e0685c",
    "error": "#b071c9",
    "hang": "#b071c9",
    "unsupported": "#d9d9d9",
    "missing": "#f5f5f5",
}


def draw(path: Path, report: Report) -> None:
    """Write the picture to `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import ListedColormap

    kinds = list(_COLOURS)
    values = [[kinds.index(row.results[number].status) for row in report.rows] for number in range(len(report.cells))]
    size = (1.5 + 1.25 * (len(report.rows) + 2), 1.2 + 0.27 * len(report.cells))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.imshow(values, cmap=ListedColormap(list(_COLOURS.values())), vmin=0, vmax=len(kinds) - 1, aspect="auto")
    for number in range(len(report.cells)):
        for column, row in enumerate(report.rows):
            axes.text(column, number, row.results[number].word, ha="center", va="center", fontsize=6.5)
    axes.set_xticks(range(len(report.rows)), [f"{row.title}\n{row.version}" for row in report.rows], fontsize=7.5)
    axes.set_yticks(range(len(report.cells)), [cell.title for cell in report.cells], fontsize=7.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xticks([column - 0.5 for column in range(1, len(report.rows))], minor=True)
    axes.set_yticks([number - 0.5 for number in range(1, len(report.cells))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
