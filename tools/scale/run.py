"""The command: prints the tables, and writes them into docs/scale.md, with their charts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial

from tools.console import Console
from tools.pages import measured_on, put_between_marks
from tools.processes import ROOT, CallFailed
from tools.scale import growth, index, plan
from tools.scale.job import Job

PAGE = ROOT / "docs" / "scale.md"


def run(given: argparse.Namespace) -> int:
    """Return 1 if something could not be measured. Everything it started has ended then."""
    console, failed, printed = Console(), False, dict[str, str]()
    job = Job(**{each.name: getattr(given, each.name) for each in fields(Job)})
    pictures = PAGE.parent / "pictures" if given.docs else None
    subjects: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "plan": lambda: plan.sections(job),
        "index": index.sections,
        "growth": partial(growth.sections, pictures=pictures),
    }
    for subject in [given.subject] if given.subject else subjects:
        about = "" if subject == "plan" else f"\n{measured_on()}"
        with console.step(subject) as step:
            try:
                for name, text in subjects[subject]():
                    console.page(text.removeprefix(printed.get(name, "")))  # the rows that are new
                    printed[name] = text
                    if given.docs:
                        put_between_marks(PAGE, "scale", name, f"{text}{about}")
            except CallFailed as error:
                step.passed, step.result, failed = False, str(error), True
    return int(failed)
