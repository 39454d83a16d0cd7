"""What the matrix found: a table on the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from tools.conformance.matrix import Cell
from tools.conformance.result import Result

_STYLES = {"exact": "green", "inexact": "bold red", "order": "yellow", "unsupported": "dim", "missing": "dim"}


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
        """Of its first package."""
        return next(iter(self.versions.values()), "")

    @property
    def heading(self) -> str:
        return f"{self.title} {self.version}".strip()

    def finding(self, result: Result) -> str:
        """Why this cell failed, as found by hand."""
        return self.findings.get(result.cell, "")


@dataclass(frozen=True)
class Report:
    """The whole matrix."""

    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    seed: int
    seconds: float

    def command(self, row: Row, cell: Cell) -> str:
        """What repeats one cell."""
        return f"python3 -m tools conformance --loaders {row.name} --cells {cell.name} --seed {self.seed}"

    def table(self) -> Table:
        """For the terminal: a line for each cell, a column for each loader."""
        table = Table(title=None, pad_edge=False)
        table.add_column("", overflow="fold")
        for row in self.rows:
            table.add_column(row.heading, overflow="fold")
        for number, cell in enumerate(self.cells):
            words = [Text(row.results[number].word, style=_style(row.results[number])) for row in self.rows]
            table.add_row(cell.title, *words)
        return table

    def markdown(self) -> str:
        """The same, in Markdown."""
        lines = ["| " + " | ".join(["", *(row.heading for row in self.rows)]) + " |"]
        lines.append("|---" * (len(self.rows) + 1) + "|")
        for number, cell in enumerate(self.cells):
            lines.append("| " + " | ".join([cell.title, *(row.results[number].word for row in self.rows)]) + " |")
        return "\n".join(lines) + "\n"

    def summary(self) -> str:
        """A line for each loader, in Markdown: how many cells ended how."""
        kinds = ("", "exact", "lost or repeated", "other order", "error or hang", "unsupported")
        lines = [f"| {' | '.join(kinds)} |", "|---" * len(kinds) + "|"]
        for row in self.rows:
            groups = (("exact",), ("inexact",), ("order",), ("error", "hang"), ("unsupported", "missing"))
            counts = [sum(result.status in group for result in row.results) for group in groups]
            lines.append("| " + " | ".join([row.heading, *(str(count or "") for count in counts)]) + " |")
        return "\n".join(lines) + "\n"

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
                finding = row.finding(result) if result.status != "exact" else ""
                measured.setdefault(finding, []).append(f"**{cell.title}**: {result.word}{detail}")
        resuming = [cell.title for cell in self.cells if cell.resumes]
        lines = [f"- {finding + ' ' if finding else ''}{'; '.join(cells)}" for finding, cells in measured.items()]
        for sentence, titles in said.items():
            lines.append(f"- *{'every cell that resumes' if titles == resuming else '; '.join(titles)}*: {sentence}")
        return lines

    def to_json(self) -> str:
        """Everything, with the command that repeats each cell."""
        loaders = []
        for row in self.rows:
            results = []
            for cell, result in zip(self.cells, row.results, strict=True):
                values = {key: value for key, value in asdict(result).items() if key != "loader"}
                finding = row.finding(result) if result.status != "exact" else ""
                results.append({**values, "title": cell.title, "finding": finding, "command": self.command(row, cell)})
            loaders.append({"name": row.name, "title": row.title, "versions": row.versions, "cells": results})
        value = {"seed": self.seed, "seconds": round(self.seconds), "loaders": loaders}
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def versions_line(rows: Sequence[Row]) -> str:
    """All packages and their versions."""
    versions = {name: version for row in rows for name, version in row.versions.items()}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _style(result: Result) -> str:
    return _STYLES.get(result.status, "magenta")
