"""The check that every change must pass. Every step runs, also after one that failed."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":  # started as a file
    os.chdir(Path(__file__).resolve().parent.parent)
    os.execv(sys.executable, [sys.executable, "-m", "tools", "check", *sys.argv[1:]])

from tools.console import Console

_ROOT = Path(__file__).resolve().parent.parent


class Step(NamedTuple):
    """One tool of the check: a Python module and its arguments."""

    title: str
    command: tuple[str, ...]


STEPS = (
    Step("lint (ruff check)", ("ruff", "check", ".")),
    Step("format (ruff format)", ("ruff", "format", "--check", ".")),
    Step("types (mypy --strict)", ("mypy",)),
    Step("tests (pytest)", ("pytest", "-n", "3", "--durations=20")),
)


def check(steps: tuple[Step, ...] = STEPS, root: Path = _ROOT) -> int:
    """Run `steps` in `root`, print what they find, and return the exit status: 0 if all of them passed."""
    console = Console()
    failed = []
    for step in steps:
        status = console.run(step.title, [sys.executable, "-m", *step.command], directory=root)
        if status:
            failed.append(step.title)
    if failed:
        console.say(f"FAILED: {', '.join(failed)}")
        return 1
    console.say("All passed.")
    return 0


def run(given: argparse.Namespace) -> int:
    """Check the checkout; 1 if a step failed."""
    return check()
