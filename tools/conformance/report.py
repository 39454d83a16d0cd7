"""What the matrix found: a table in Markdown, JSON, and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.run import Result
from tools.peers import Peer
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
_NOT_RUN = ("unsupported", "missing")


@dataclass(frozen=True)
class Row:
    """One loader, the versions of its packages, and its result in each cell."""

    loader: Peer
    versions: Mapping[str, str]
    results: Sequence[Result]

    @property
    def heading(self) -> str:
        """Its title and the version of its first package."""
        return " ".join([self.loader.title, *list(self.versions.values())[:1]])

    def finding(self, result: Result) -> str:
        """Why this cell failed, as found by hand."""
        return self.loader.findings.get(result.cell.name, "") if result.status != "exact" else ""

    def count(self, *statuses: str) -> int:
        """How many cells ended so."""
        return sum(result.status in statuses for result in self.results)


@dataclass(frozen=True)
class Report:
    """The whole matrix: each row has the same cells."""

    rows: Sequence[Row]
    seed: int

    def lines(self) -> list[tuple[Result, ...]]:
        """For each cell, the result of each loader."""
        return list(zip(*(row.results for row in self.rows), strict=True))

    def markdown(self) -> str:
        """A line for each cell, a column for each loader."""
        rows = [[line[0].cell.title, *(result.word for result in line)] for line in self.lines()]
        return table(["", *(row.heading for row in self.rows)], rows)

    def summary(self) -> str:
        """A Markdown table with a line for each loader: how many cells ended how."""
        groups = (("exact",), ("inexact",), ("order",), ("error", "hang"), ("unsupported", "missing"))
        rows = [[row.heading, *(str(row.count(*group) or "") for group in groups)] for row in self.rows]
        return table(("", "exact", "lost or repeated", "other order", "error or hang", "unsupported"), rows)

    def details(self) -> str:
        """What each loader did where it was not exact, in Markdown: measured, found by hand, by its documentation."""
        lines = []
        for row in self.rows:
            lines += [f"### {row.heading}", "", *(_details(row) or ["Every cell is exact."]), ""]
        return "\n".join(lines)

    def versions(self) -> str:
        """All packages and their versions."""
        found = {name: version for row in self.rows for name, version in row.versions.items()}
        return ", ".join(f"{name} {version}" for name, version in found.items())

    def to_json(self) -> str:
        """Everything, with the command that repeats each cell."""
        command = "python3 -m tools conformance --loaders {} --cells {} --seed {}"
        cells = [
            {"loader": row.loader.name, **vars(each), "cell": each.cell.name, "title": each.cell.title}
            | {"finding": row.finding(each), "command": command.format(row.loader.name, each.cell.name, self.seed)}
            for row in self.rows
            for each in row.results
        ]
        value = {"seed": self.seed, "versions": self.versions(), "cells": cells}
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    def draw(self, path: Path) -> None:
        """Draw the table, with a colour for each kind of result."""
        from matplotlib.figure import Figure
        from matplotlib.transforms import Bbox

        lines = self.lines()
        size = (1.5 + 1.25 * (len(self.rows) + 2), 1.2 + 0.27 * len(lines))
        figure = Figure(size, layout="constrained")
        axes = figure.subplots()
        axes.axis("off")
        drawn = axes.table(
            [[result.word for result in line] for line in lines],
            [[_COLOURS[result.status] for result in line] for line in lines],
            rowLabels=[line[0].cell.title for line in lines],
            colLabels=[row.heading for row in self.rows],
            cellLoc="center",
            bbox=Bbox.unit(),
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(7)
        for cell in drawn.get_celld().values():
            cell.set_edgecolor("white")
        figure.savefig(path, dpi=90)


def _details(row: Row) -> list[str]:
    measured: dict[str, list[str]] = {}  # what was found by hand -> the cells that it explains
    said: dict[str, list[str]] = {}  # what the documentation says -> its cells
    for result in row.results:
        if result.status in _NOT_RUN:
            said.setdefault(f"{result.word}: {result.detail}", []).append(result.cell.title)
        elif result.status != "exact" or result.detail:
            detail = f" ({result.detail})" if result.detail else ""
            measured.setdefault(row.finding(result), []).append(f"**{result.cell.title}**: {result.word}{detail}")
    resuming = [result.cell.title for result in row.results if result.cell.resumes]
    lines = [f"- {finding + ' ' if finding else ''}{'; '.join(cells)}" for finding, cells in measured.items()]
    for sentence, titles in said.items():
        lines.append(f"- *{'every cell that resumes' if titles == resuming else '; '.join(titles)}*: {sentence}")
    return lines
