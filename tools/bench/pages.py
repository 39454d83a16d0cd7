"""Writes docs/benchmarks.md's tables and pictures, and README.md's short table, anew."""

from __future__ import annotations

from pathlib import Path

from tools.bench.report import Report
from tools.marks import put_between_marks

_ROOT = Path(__file__).resolve().parent.parent.parent


def write_pages(report: Report, root: Path = _ROOT) -> None:
    """The marked parts alone."""
    page = root / "docs" / "benchmarks.md"
    put_between_marks(page, "bench", "about", report.about())
    put_between_marks(page, "bench", "goals", report.goals())
    put_between_marks(page, "bench", "tables", report.markdown())
