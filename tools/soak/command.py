"""The command: runs the soak and writes down what it found."""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.soak.run import Soak
from tools.tables import put_between_marks

_ROOT = Path(__file__).resolve().parent.parent.parent


def run(given: argparse.Namespace) -> int:
    """1 if anything was wrong. Everything it started has ended then."""
    print(f"Soaking for {given.minutes:g} minutes, --seed {given.seed}", flush=True)
    report = Soak(given.minutes, given.seed, lambda text: print(text, flush=True)).run()
    for name, text in report.rows():
        print(f"{name}: {text}")
    for problem in report.problems():
        print(f"PROBLEM: {problem}")
    if given.json:
        Path(given.json).write_text(report.to_json())
    if given.docs:
        put_between_marks(_ROOT / "docs" / "reliability.md", "soak", "figures", report.markdown())
    print(report.verdict())
    return 1 if report.problems() else 0
