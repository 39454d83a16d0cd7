"""The command: prints the tables of each subject, and writes them into docs/scale.md."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from tools.console import Console
from tools.pages import machine, put_between_marks, today
from tools.processes import ROOT, CallFailed
from tools.scale.options import QUICK, SUBJECTS, Job, Prices

PAGE = ROOT / "docs" / "scale.md"


def run(given: argparse.Namespace) -> int:
    """Return 1 if a subject failed. Everything it started has ended then."""
    console, failed, printed = Console(), False, dict[str, str]()
    for name in given.subjects or SUBJECTS:
        with console.step(SUBJECTS[name]) as step:
            try:
                for table, text in sections(name, given):
                    console.page(text.removeprefix(printed.get(table, "")))  # the rows that are new
                    printed[table] = text
                    if given.docs:
                        put_between_marks(PAGE, "scale", table, f"{text}{_about(name)}")
            except (CallFailed, AssertionError) as error:
                step.passed, step.result, failed = False, str(error), True
    return int(failed)


def sections(name: str, given: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a subject's tables: one that is measured for long, once more with each new row."""
    module: Any = importlib.import_module(f"tools.scale.{name}")
    if name == "plan":
        job = Job(given.samples, given.sample_bytes, given.nodes, given.ranks, given.batch, given.step)
        prices = Prices(given.price_get, given.price_put, given.price_storage, given.price_egress)
        yield from module.sections(job, prices)
    else:
        yield from module.sections(QUICK if given.quick else 1.0)


def _about(name: str) -> str:
    """Return when and on what a subject was measured; nothing for what is computed."""
    here = machine()
    return (
        ""
        if name == "plan"
        else f"\nMeasured {today()} on {here['cores']} cores, {here['memory']}, shared with others.\n"
    )
