"""The command: runs the chosen loaders, one after the other, and writes what they did as tables and JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.matrix import LIMIT, Cell, cells
from tools.conformance.run import Result, run_loader
from tools.console import Console, temporary_directory
from tools.environment import install_missing
from tools.pages import put_between_marks, table, versions_of
from tools.peers import NAMES, Peer, peer
from tools.processes import ROOT

_NOT_RUN = ("unsupported", "missing")


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx was run and is not exact in every cell. Everything it started has ended then."""
    found = map(peer, given.loaders or (["mdsx"] if given.quick else NAMES))
    loaders = [each for each in found if each.in_conformance]
    every = cells(given.seed)
    chosen = [cell for cell in every if (cell.name in given.cells if given.cells else cell.quick or not given.quick)]
    console = Console()
    missing = install_missing(console, [loader.environment for loader in loaders])
    rows = []
    with temporary_directory("mdsx-conformance-", given.scratch) as directory:
        for loader in loaders:
            if reason := missing.get(loader.environment):
                rows.append(Row(loader, {}, [Result(cell, "missing", detail=reason) for cell in chosen]))
            else:
                rows.append(_run(console, loader, chosen, directory / loader.name, given))
    console.page(f"{markdown(rows)}\n{details(rows)}")
    console.print(versions(rows))
    if given.json:
        Path(given.json).write_text(to_json(rows, given.seed))
    if given.docs:
        docs = ROOT / "docs" / "conformance.md"
        put_between_marks(docs, "matrix", "table", markdown(rows))
        put_between_marks(docs, "matrix", "details", details(rows))
        put_between_marks(docs, "matrix", "versions", f"{versions(rows)}.\n")
        put_between_marks(ROOT / "README.md", "matrix", "summary", summary(rows))
    return int(any(row.loader.name == "mdsx" and row.count("exact") < len(chosen) for row in rows))


def _run(console: Console, loader: Peer, chosen: Sequence[Cell], directory: Path, given: argparse.Namespace) -> Row:
    found = []
    run = run_loader(loader.name, loader.environment, directory, chosen, seed=given.seed, limit=LIMIT)
    with console.step(f"{loader.title} in {len(chosen)} cells") as step, closing(run):
        for result in run:
            found.append(result)
            step.note(f"{len(found)} done; {result.cell.title}: {result.word}")
        row = Row(loader, versions_of(loader), found)
        step.result = f"exact in {row.count('exact')}"
    return row


@dataclass(frozen=True)
class Row:
    """One loader, the versions of its packages, and its result in each cell."""

    loader: Peer
    versions: Mapping[str, str]
    results: Sequence[Result]

    @property
    def heading(self) -> str:
        return " ".join([self.loader.title, *list(self.versions.values())[:1]])

    def finding(self, result: Result) -> str:
        return self.loader.findings.get(result.cell.name, "") if result.status != "exact" else ""

    def count(self, *statuses: str) -> int:
        return sum(result.status in statuses for result in self.results)


def _lines(rows: Sequence[Row]) -> list[tuple[Result, ...]]:
    """For each cell, the result of each loader."""
    return list(zip(*(row.results for row in rows), strict=True))


def markdown(rows: Sequence[Row]) -> str:
    """A line for each cell, a column for each loader."""
    cells = [[line[0].cell.title, *(result.word for result in line)] for line in _lines(rows)]
    return table(["", *(row.heading for row in rows)], cells)


def summary(rows: Sequence[Row]) -> str:
    """A Markdown table with a line for each loader: how many cells ended how."""
    groups = (("exact",), ("inexact",), ("order",), ("error", "hang"), ("unsupported", "missing"))
    counts = [[row.heading, *(str(row.count(*group) or "") for group in groups)] for row in rows]
    return table(("", "exact", "lost or repeated", "other order", "error or hang", "unsupported"), counts)


def details(rows: Sequence[Row]) -> str:
    """What each loader did where it was not exact, in Markdown: measured, found by hand, by its documentation."""
    lines = []
    for row in rows:
        measured: dict[str, list[str]] = {}  # what was found by hand -> the cells that it explains
        said: dict[str, list[str]] = {}  # what the documentation says -> its cells
        for result in row.results:
            if result.status in _NOT_RUN:
                said.setdefault(f"{result.word}: {result.detail}", []).append(result.cell.title)
            elif result.status != "exact" or result.detail:
                detail = f" ({result.detail})" if result.detail else ""
                measured.setdefault(row.finding(result), []).append(f"**{result.cell.title}**: {result.word}{detail}")
        resuming = [result.cell.title for result in row.results if result.cell.resumes]
        found = [f"- {finding + ' ' if finding else ''}{'; '.join(cells)}" for finding, cells in measured.items()]
        for sentence, titles in said.items():
            found.append(f"- *{'every cell that resumes' if titles == resuming else '; '.join(titles)}*: {sentence}")
        lines += [f"### {row.heading}", "", *(found or ["Every cell is exact."]), ""]
    return "\n".join(lines)


def versions(rows: Sequence[Row]) -> str:
    found = {name: version for row in rows for name, version in row.versions.items()}
    return ", ".join(f"{name} {version}" for name, version in found.items())


def to_json(rows: Sequence[Row], seed: int) -> str:
    """Everything, with the command that repeats each cell."""
    command = "python3 -m tools conformance --loaders {} --cells {} --seed {}"
    cells = [
        {"loader": row.loader.name, **vars(each), "cell": each.cell.name, "title": each.cell.title}
        | {"finding": row.finding(each), "command": command.format(row.loader.name, each.cell.name, seed)}
        for row in rows
        for each in row.results
    ]
    value = {"seed": seed, "versions": versions(rows), "cells": cells}
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
