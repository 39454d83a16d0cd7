"""The command: runs the chosen loaders, two at a time, and writes the tables."""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.conformance.matrix import QUICK, Cell, cells
from tools.conformance.report import Report, Row
from tools.conformance.run import Result, run_loader
from tools.console import Console, temporary_directory
from tools.environment import install_missing
from tools.peers import NAMES, peer
from tools.processes import ROOT, end_calls
from tools.tables import put_between_marks

_AT_ONCE = 2  # loaders; each runs one cell after the other


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx was run and is not exact in every cell. Everything it started has ended then."""
    names = given.loaders or (["mdsx"] if given.quick else list(NAMES))
    wanted = given.cells or (QUICK if given.quick else [cell.name for cell in cells()])
    chosen = [cell for cell in cells(given.seed) if cell.name in wanted]
    console = Console(live=False, file=sys.stderr) if given.json else Console()
    started = time.monotonic()
    with temporary_directory("mdsx-conformance-", given.keep) as directory:
        rows = _run(console, names, chosen, directory, given)
    report = Report(tuple(chosen), tuple(rows), given.seed, time.monotonic() - started)
    _show(console, report, given)
    return int(any(row.name == "mdsx" and any(result.status != "exact" for result in row.results) for row in rows))


def _run(
    console: Console, names: Sequence[str], chosen: Sequence[Cell], directory: Path, given: argparse.Namespace
) -> list[Row]:
    missing = install_missing(console, [peer(name).environment for name in names])
    titles = ", ".join(peer(name).title for name in names)
    lock = threading.Lock()
    done = dict.fromkeys(names, 0)
    with console.step(f"Running {len(chosen)} cells of {titles}") as step:

        def count(result: Result) -> None:
            with lock:
                done[result.loader] += 1
                step.note(", ".join(f"{name} {ended}/{len(chosen)}" for name, ended in done.items()))

        def row(name: str) -> Row:
            loader = peer(name)
            if loader.environment in missing:
                results = [Result(name, cell.name, "missing", detail=missing[loader.environment]) for cell in chosen]
                return Row(name, loader.title, {}, tuple(results), {})
            how = {"seed": given.seed, "limit": given.limit, "keep": given.keep is not None}
            versions, found = run_loader(name, directory / name, chosen, **how, done=count)
            with lock:
                exact, seconds = sum(each.status == "exact" for each in found), sum(each.seconds for each in found)
                step.note(f"{loader.title}: exact in {exact} of {len(found)} cells ({seconds:.0f} s)", milestone=True)
            if not given.keep:
                shutil.rmtree(directory / name, ignore_errors=True)
            return Row(name, loader.title, versions, tuple(found), loader.findings)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                return list(pool.map(row, names))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                end_calls()
                raise


def _show(console: Console, report: Report, given: argparse.Namespace) -> None:
    if given.json:
        print(report.to_json(), end="")
    else:
        console.page(report.markdown())
        for row in report.rows:
            for cell, result in zip(report.cells, row.results, strict=True):
                if result.status not in ("exact", "unsupported", "missing"):
                    console.print(f"{row.title}, {cell.title}: {result.word}. {result.detail}")
                    console.print(f"    {report.command(row, cell)}")
        console.print(f"{report.versions()}; {report.seconds:.0f} s")
    if given.output:
        output = Path(given.output)
        output.mkdir(parents=True, exist_ok=True)
        (output / "conformance.md").write_text(report.markdown() + "\n" + report.details())
        (output / "conformance.json").write_text(report.to_json())
        report.draw(output / "conformance.png")
        console.print(f"Written: {', '.join(str(output / f'conformance.{kind}') for kind in ('md', 'json', 'png'))}")
    if given.docs:
        page = ROOT / "docs" / "conformance.md"
        put_between_marks(page, "matrix", "table", report.markdown())
        put_between_marks(page, "matrix", "details", report.details())
        put_between_marks(page, "matrix", "versions", f"{report.versions()}.\n")
        put_between_marks(ROOT / "README.md", "matrix", "summary", report.summary())
        report.draw(ROOT / "docs" / "conformance.png")
