"""The check that every change must pass."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.console import Console
from tools.processes import ROOT

Steps = Sequence[tuple[str, tuple[str, ...]]]  # titles; Python modules with their arguments
_WORKERS = min(len(os.sched_getaffinity(0)) * 3 // 2, 8)  # more than cores: tests wait for servers and processes
_TESTS = ("pytest", "-n", str(_WORKERS), "--dist", "worksteal", "--durations=20")
STEPS: Steps = (
    ("lint (ruff check)", ("ruff", "check", ".")),
    ("format (ruff format)", ("ruff", "format", "--check", ".")),
    ("types (mypy --strict)", ("mypy",)),
    ("tests (pytest)", _TESTS),
)
HEADING = "processor seconds by test module, with those of the processes that it started:"
"""The line of pytest's output from which a terminal shows it too."""


def steps_of(*, everything: bool = False, install_browser: bool = False) -> Steps:
    """Return the steps of the check, or of everything.

    The tests with Ray and Spark come last and one at a time: each starts a cluster.
    """
    if not everything:
        return STEPS
    return (
        *STEPS,
        ("headless Chromium for tests of pages", ("tools.browser", *["--install"] * install_browser)),
        ("slow tests (pytest -m slow)", (*_TESTS, "-m", "slow")),
        ("the documentation's site (site)", ("tools", "site")),
        ("packages (package --all)", ("tools", "package", "--all")),
        ("tests with engines (pytest -m engines)", ("pytest", "-m", "engines", "--durations=20")),
    )


def run(given: argparse.Namespace) -> int:
    return run_steps(steps_of(everything=given.all, install_browser=given.install_browser))


def run_steps(steps: Steps, root: Path = ROOT) -> int:
    """Run each step in `root`, also after one that failed. Return the exit status: 0 if all of them passed."""
    console = Console()
    failed = [
        title
        for title, command in steps
        if console.run(title, [sys.executable, "-m", *command], root, shown_from=HEADING)
    ]
    console.print(f"FAILED: {', '.join(failed)}" if failed else "All passed.")
    return int(bool(failed))
