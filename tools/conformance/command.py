"""The command: what is chosen, how it goes, what is written."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import rich.console

from tools.conformance.adaptors import NAMES, Adaptor, adaptor
from tools.conformance.client import stop_all
from tools.conformance.matrix import QUICK, Cell, cells
from tools.conformance.picture import draw
from tools.conformance.report import Report, Row, versions_line
from tools.conformance.result import Result
from tools.conformance.run import Matrix
from tools.console import Console, Step
from tools.marks import put_between_marks
from tools.peers.environments import CannotInstall, PeerEnvironment

_ROOT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 170  # columns of the table, where it is not on a terminal
_AT_ONCE = 2  # loaders; each of them runs one cell after the other


def run(given: argparse.Namespace) -> int:
    """1 if mdsx was run and is not exact in every cell. Everything it started has ended then."""
    names = given.loaders or (["mdsx"] if given.quick else list(NAMES))
    chosen = [cell for cell in cells(given.seed) if _wanted(cell, given.cells, given.quick)]
    console = _ErrorConsole(live=False) if given.json else Console()
    directory = Path(mkdtemp(prefix="mdsx-conformance-")) if given.keep is None else Path(given.keep).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        rows = _run(console, names, chosen, directory, given.seed, given.limit, given.keep is not None)
    finally:
        if given.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    report = Report(tuple(chosen), tuple(rows), given.seed, time.monotonic() - started)
    _show(console, report, given)
    return int(any(row.name == "mdsx" and any(result.status != "exact" for result in row.results) for row in rows))


def _wanted(cell: Cell, names: Sequence[str] | None, quick: bool) -> bool:
    return cell.name in names if names else not quick or cell.name in QUICK


def _run(
    console: Console, names: Sequence[str], chosen: Sequence[Cell], directory: Path, seed: int, limit: float, keep: bool
) -> list[Row]:
    loaders = [adaptor(name) for name in names]
    missing: dict[str, str] = {}
    pythons: dict[str, Path] = {}
    for each in loaders:
        try:
            pythons[each.name] = _python(console, each)
        except CannotInstall as error:
            missing[each.name] = str(error)
    with console.step(f"Running {len(chosen)} cells of {', '.join(each.title for each in loaders)}") as step:
        progress = _Progress(step, len(chosen))

        def row(each: Adaptor) -> Row:
            if each.name in missing:
                results = [Result(each.name, cell.name, "missing", detail=missing[each.name]) for cell in chosen]
                return Row(each.name, each.title, {}, tuple(results), {})
            matrix = Matrix(each.name, pythons[each.name], directory / each.name, seed, limit, keep)
            found = matrix.run(chosen, progress.cell)
            progress.loader(each.title, found)
            if not keep:
                shutil.rmtree(directory / each.name, ignore_errors=True)
            return Row(each.name, each.title, matrix.versions, tuple(found), each.findings)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                return list(pool.map(row, loaders))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                stop_all()
                raise


def _python(console: Console, each: Adaptor) -> Path:
    if each.requirements is None:
        return Path(sys.executable)
    environment = PeerEnvironment(each.requirements)
    if not environment.complete():
        with console.step(f"Installing {each.title} into {environment.directory.relative_to(_ROOT)}") as step:
            try:
                environment.install()
            except CannotInstall as error:
                step.passed, step.result = False, str(error)
                console.say(f"  {error}")
                raise
    return environment.python


class _ErrorConsole(Console):
    """Prints on standard error: standard output is for JSON."""

    def say(self, text: str = "", style: str | None = None) -> None:
        print(text, file=sys.stderr, flush=True)


class _Progress:
    """How far the loaders are."""

    def __init__(self, step: Step, cells_each: int) -> None:
        self._step, self._cells = step, cells_each
        self._done: dict[str, int] = {}
        self._lock = threading.Lock()

    def cell(self, result: Result) -> None:
        with self._lock:
            self._done[result.loader] = self._done.get(result.loader, 0) + 1
            self._step.note(
                ", ".join(f"{name} {done}/{self._cells}" for name, done in self._done.items() if done < self._cells)
            )

    def loader(self, title: str, found: Sequence[Result]) -> None:
        with self._lock:
            exact = sum(result.status == "exact" for result in found)
            seconds = sum(result.seconds for result in found)
            self._step.note(f"{title}: exact in {exact} of {len(found)} cells ({seconds:.0f} s)", milestone=True)


def _show(console: Console, report: Report, given: argparse.Namespace) -> None:
    if given.json:
        print(report.to_json(), end="")
    else:
        wide = console.rich if console.rich.is_terminal else rich.console.Console(width=_WIDTH)
        wide.print(report.table())
        for row in report.rows:
            for cell, result in zip(report.cells, row.results, strict=True):
                if result.status not in ("exact", "unsupported", "missing"):
                    console.say(f"{row.title}, {cell.title}: {result.word}. {result.detail}")
                    console.say(f"    {report.command(row, cell)}")
        console.say(f"{versions_line(report.rows)}; {report.seconds:.0f} s")
    if given.output:
        output = Path(given.output)
        output.mkdir(parents=True, exist_ok=True)
        (output / "conformance.md").write_text(report.markdown() + "\n" + report.details())
        (output / "conformance.json").write_text(report.to_json())
        draw(output / "conformance.png", report)
        console.say(f"Written: {', '.join(str(output / f'conformance.{kind}') for kind in ('md', 'json', 'png'))}")
    if given.docs:
        docs = _ROOT / "docs"
        put_between_marks(docs / "conformance.md", "matrix", "table", report.markdown())
        put_between_marks(docs / "conformance.md", "matrix", "details", report.details())
        put_between_marks(docs / "conformance.md", "matrix", "versions", f"{versions_line(report.rows)}.\n")
        put_between_marks(_ROOT / "README.md", "matrix", "summary", report.summary())
        draw(docs / "conformance.png", report)


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
