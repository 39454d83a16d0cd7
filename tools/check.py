#!/usr/bin/env python3
"""Check everything: ruff, formatting, strict types, all tests. `python3 tools/check.py`

Makes the project's environment first where it is not there. Every step runs, also after one that failed; the exit
status is 1 where any did.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parent.parent


class Step(NamedTuple):
    """One tool of the check: a Python module and its arguments."""

    title: str
    command: tuple[str, ...]


STEPS = (
    Step("lint (ruff check)", ("ruff", "check", ".")),
    Step("format (ruff format)", ("ruff", "format", "--check", ".")),
    Step("types (mypy --strict)", ("mypy",)),
    Step("tests (pytest)", ("pytest", "-n", "2")),
)


def check(steps: tuple[Step, ...] = STEPS, root: Path = _ROOT) -> int:
    """Run `steps` in `root`, print what they find, and return the exit status: 0 if all of them passed."""
    from tools.console import Console

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


def main() -> int:
    if set(sys.argv[1:]) & {"-h", "--help"}:
        print(__doc__)
        return 0
    if len(sys.argv) > 1:
        print(f"no arguments are known (found {sys.argv[1]!r}); for a part use ruff, mypy, pytest", file=sys.stderr)
        return 2
    sys.path.insert(0, str(_ROOT))
    from tools._environment import enter_environment

    try:
        enter_environment()
        return check()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    os.chdir(_ROOT)
    sys.exit(main())
