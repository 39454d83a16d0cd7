"""What the matrix found: a table in Markdown, JSON, and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.conformance.matrix import Cell
from tools.conformance.run import Result
from tools.tables import table

_COLOURS = {
    "exact": "#7bc47f",
    "order": "#f2d16b",
    "inexact": "#e0685c",
    "error": "#b071c9",
    "hang": "#b071c9",
    "unsupported": "#d9d9d9",
    "missing": "#f5f5f5",
}


@dataclass(frozen=True)
class Row:
    """One loader's results, in the order of the cells."""

    name: str
    title: str
    versions: Mapping[str, str]
    results: tuple[Result, ...]
    findings: Mapping[str, str]

    @property
    def version(self) -> str:
        """The version of its first package."""
        return next(iter(self.versions.values()), "")

    @property
    def heading(self) -> str:
        return f"{self.title} {self.version}".strip()

    def finding(self, result: Result) -> str:
        """Why this cell failed, as found by hand."""
        return self.findings.get(result.cell, "") if result.status != "exact" else ""


@dataclass(frozen=True)
class Report:
    """The whole matrix."""

    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    seed: int
    seconds: float

    def command(self, row: Row, cell: Cell) -> str:
        """The command that repeats a cell."""
        return f"python3 -m tools conformance --loaders {row.name} --cells {cell.name} --seed {self.seed}"

    def markdown(self) -> str:
        """A line for each cell, a column for each loader."""
        rows = [[cell.title, *(each.word for each in results)] for cell, results in self._lines()]
        return table(["", *(row.heading for row in self.rows)], rows)

    def summary(self) -> str:
        """A Markdown table with a line for each loader: how many cells ended how."""
        groups = (("exact",), ("inexact",), ("order",), ("error", "hang"), ("unsupported", "missing"))
        rows = []
        for row in self.rows:
            counts = [sum(result.status in group for result in row.results) for group in groups]
            rows.append([row.heading, *(str(count or "") for count in counts)])
        return table(("", "exact", "lost or repeated", "other order", "error or hang", "unsupported"), rows)

    def details(self) -> str:
        """What each loader did where it was not exact, in Markdown: measured, found by hand, by its documentation."""
        lines = []
        for row in self.rows:
            lines += [f"### {row.heading}", "", *(self._details(row) or ["Every cell is exact."]), ""]
        return "\n".join(lines)

    def _details(self, row: Row) -> list[str]:
        measured: dict[str, list[str]] = {}  # what was found by hand -> the cells that it explains
        said: dict[str, list[str]] = {}  # what the documentation says -> its cells
        for cell, result in zip(self.cells, row.results, strict=True):
            if result.status in ("unsupported", "missing"):
                said.setdefault(f"{result.word}: {result.detail}", []).append(cell.title)
            elif result.status != "exact" or result.detail:
                detail = f" ({result.detail})" if result.detail else ""
                measured.setdefault(row.finding(result), []).append(f"**{cell.title}**: {result.word}{detail}")
        resuming = [cell.title for cell in self.cells if cell.resumes]
        lines = [f"- {finding + ' ' if finding else ''}{'; '.join(cells)}" for finding, cells in measured.items()]
        for sentence, titles in said.items():
            lines.append(f"- *{'every cell that resumes' if titles == resuming else '; '.join(titles)}*: {sentence}")
        return lines

    def versions(self) -> str:
        """All packages and their versions."""
        found = {name: version for row in self.rows for name, version in row.versions.items()}
        return ", ".join(f"{name} {version}" for name, version in found.items())

    def to_json(self) -> str:
        """Everything, with the command that repeats each cell."""
        loaders = []
        for row in self.rows:
            results = [
                {
                    **asdict(result),
                    "title": cell.title,
                    "finding": row.finding(result),
                    "command": self.command(row, cell),
                }
                for cell, result in zip(self.cells, row.results, strict=True)
            ]
            loaders.append({"name": row.name, "title": row.title, "versions": row.versions, "cells": results})
        value = {"seed": self.seed, "seconds": round(self.seconds), "loaders": loaders}
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    def draw(self, path: Path) -> None:
        """Write a heat map: a column for each loader, a line for each cell, a colour for each kind of result."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.colors import ListedColormap

        kinds = list(_COLOURS)
        values = [[kinds.index(result.status) for result in results] for _, results in self._lines()]
        size = (1.5 + 1.25 * (len(self.rows) + 2), 1.2 + 0.27 * len(self.cells))
        figure, axes = pyplot.subplots(figsize=size, layout="constrained")
        axes.imshow(values, cmap=ListedColormap(list(_COLOURS.values())), vmin=0, vmax=len(kinds) - 1, aspect="auto")
        for number, (_, results) in enumerate(self._lines()):
            for column, result in enumerate(results):
                axes.text(column, number, result.word, ha="center", va="center", fontsize=6.5)
        axes.set_xticks(range(len(self.rows)), [f"{row.title}\n{row.version}" for row in self.rows], fontsize=7.5)
        axes.set_yticks(range(len(self.cells)), [cell.title for cell in self.cells], fontsize=7.5)
        axes.xaxis.tick_top()
        axes.set_xticks([column - 0.5 for column in range(1, len(self.rows))], minor=True)
        axes.set_yticks([number - 0.5 for number in range(1, len(self.cells))], minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.savefig(path, dpi=90)
        pyplot.close(figure)

    def _lines(self) -> list[tuple[Cell, Sequence[Result]]]:
        return [(cell, [row.results[number] for row in self.rows]) for number, cell in enumerate(self.cells)]
