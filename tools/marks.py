"""The parts of Markdown files that tools rewrite: what stands between two comments."""

from __future__ import annotations

from pathlib import Path


def put_between_marks(path: Path, kind: str, name: str, text: str) -> None:
    """Replace what stands between `<!-- kind: name -->` and `<!-- end of kind: name -->` in a Markdown file."""
    whole = path.read_text()
    begin, end = f"<!-- {kind}: {name} -->", f"<!-- end of {kind}: {name} -->"
    before, found, rest = whole.partition(begin)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        raise ValueError(f"{path} has no marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n{text}{end}{after}")
