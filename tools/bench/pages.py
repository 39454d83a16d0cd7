"""Writes the marked parts of docs/benchmarks.md and README.md, and the pictures beside them, anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.bench.chart import draw
from tools.bench.report import Report
from tools.marks import put_between_marks

_ROOT = Path(__file__).resolve().parent.parent.parent
_PICTURES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "benchmarks-loader": ("The shuffled loader", lambda name: name.startswith("loader-") and name.endswith("-32")),
    "benchmarks-random": ("Random access", lambda name: name.startswith("random")),
    "benchmarks-iterate": ("Sample by sample", lambda name: name.startswith(("sequential-", "shuffled-"))),
    "benchmarks-write": ("Writing", lambda name: name.startswith("write-")),
}
_SHORT = ("loader-{}-32", "random-{}", "write-{}")  # README's lines
_WORKLOADS = ("tokens", "images", "text", "mixed")


def write_pages(report: Report, root: Path = _ROOT) -> None:
    """What stands between the marks, and nothing else; a picture only where one of its subjects was measured."""
    page = root / "docs" / "benchmarks.md"
    put_between_marks(page, "bench", "about", report.about())
    put_between_marks(page, "bench", "goals", report.goals())
    put_between_marks(page, "bench", "tables", report.markdown())
    short = [pattern.format(workload) for pattern in _SHORT for workload in _WORKLOADS]
    pictures = []
    for name, (title, wanted) in _PICTURES.items():
        outcomes = [each for each in report.outcomes if wanted(each.subject.name) and each.measured]
        if outcomes:
            draw(root / "docs" / f"{name}.png", outcomes)
            pictures.append(f"![{title}]({name}.png)\n")
    put_between_marks(page, "bench", "pictures", "\n".join(pictures))
    chart = next(iter(pictures), "").replace("](", "](docs/")
    put_between_marks(root / "README.md", "bench", "summary", f"{chart}\n{report.summary(short)}")
