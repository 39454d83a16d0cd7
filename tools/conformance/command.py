"""The command: runs the chosen loaders, one after the other, and writes the tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from tools.conformance.matrix import QUICK, Cell, cells
from tools.conformance.report import Report, Row
from tools.conformance.run import Result, run_loader
from tools.console import Console, temporary_directory
from tools.environment import PeerEnvironment, install_missing
from tools.peers import NAMES, Peer, peer
from tools.processes import ROOT
from tools.tables import put_between_marks


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx was run and is not exact in every cell. Everything it started has ended then."""
    loaders = [peer(name) for name in given.loaders or (["mdsx"] if given.quick else NAMES)]
    wanted = given.cells or (QUICK if given.quick else [cell.name for cell in cells()])
    chosen = [cell for cell in cells(given.seed) if cell.name in wanted]
    console = Console()
    missing = install_missing(console, [loader.environment for loader in loaders])
    rows = []
    with temporary_directory("mdsx-conformance-", given.keep) as directory:
        for loader in loaders:
            if reason := missing.get(loader.environment):
                rows.append(Row(loader, {}, [Result(cell, "missing", detail=reason) for cell in chosen]))
            else:
                rows.append(_run(console, loader, chosen, directory / loader.name, given))
    report = Report(rows, given.seed)
    page = f"{report.markdown()}\n{report.details()}"
    console.page(page)
    console.print(report.versions())
    if given.output:
        output = Path(given.output)
        output.mkdir(parents=True, exist_ok=True)
        (output / "conformance.md").write_text(page)
        (output / "conformance.json").write_text(report.to_json())
        report.draw(output / "conformance.png")
    if given.docs:
        docs = ROOT / "docs" / "conformance.md"
        put_between_marks(docs, "matrix", "table", report.markdown())
        put_between_marks(docs, "matrix", "details", report.details())
        put_between_marks(docs, "matrix", "versions", f"{report.versions()}.\n")
        put_between_marks(ROOT / "README.md", "matrix", "summary", report.summary())
        report.draw(docs.with_suffix(".png"))
    return int(any(row.loader.name == "mdsx" and row.count("exact") < len(chosen) for row in rows))


def _run(console: Console, loader: Peer, chosen: Sequence[Cell], directory: Path, given: argparse.Namespace) -> Row:
    found = []
    run = run_loader(loader.name, loader.environment, directory, chosen, seed=given.seed, limit=given.limit)
    with console.step(f"{loader.title} in {len(chosen)} cells") as step, closing(run):
        for result in run:
            found.append(result)
            step.note(f"{len(found)} done; {result.cell.title}: {result.word}")
        version_of = PeerEnvironment(loader.environment).version if loader.environment else version
        row = Row(loader, {package: version_of(package) for package in loader.packages}, found)
        step.result = f"exact in {row.count('exact')}"
    return row
