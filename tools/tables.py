"""Markdown: tables, and the parts of pages that tools rewrite."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table with the columns numbered in `right` aligned to the right."""
    rule = "".join("|--:" if number in right else "|---" for number in range(len(heads)))
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"| {' | '.join(heads)} |", f"{rule}|", *lines]) + "\n"


def put_between_marks(path: Path, kind: str, name: str, text: str) -> None:
    """Replace the text between `<!-- kind: name -->` and `<!-- end of kind: name -->` in a Markdown file."""
    whole = path.read_text()
    begin, end = f"<!-- {kind}: {name} -->", f"<!-- end of {kind}: {name} -->"
    before, found, rest = whole.partition(begin)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        raise ValueError(f"{path} has no marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n{text}{end}{after}")
