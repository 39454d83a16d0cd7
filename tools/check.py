"""The check that every change must pass. Every step runs, also after one that failed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.console import Console

ROOT = Path(__file__).resolve().parent.parent
Step = tuple[str, tuple[str, ...]]
"""A title, and a Python module with its arguments."""
STEPS: tuple[Step, ...] = (
    ("lint (ruff check)", ("ruff", "check", ".")),
    ("format (ruff format)", ("ruff", "format", "--check", ".")),
    ("types (mypy --strict)", ("mypy",)),
    ("tests (pytest)", ("pytest", "-n", "3", "--durations=20")),
)


def run(given: argparse.Namespace, steps: tuple[Step, ...] = STEPS, root: Path = ROOT) -> int:
    """Run `steps` in `root`, print what they find, and return the exit status: 0 if all of them passed."""
    console = Console()
    failed = [title for title, command in steps if console.run(title, [sys.executable, "-m", *command], root)]
    console.print(f"FAILED: {', '.join(failed)}" if failed else "All passed.")
    return int(bool(failed))
