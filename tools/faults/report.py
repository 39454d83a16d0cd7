"""What the loaders came to: a table, and the errors that they raised."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.conformance.adaptors import adaptor
from tools.faults.cases import CASES
from tools.faults.run import Found

_WIDTH = 200
_TEMPORARY = re.compile(r"/\S*/mdsx-faults-[^/]+/\d+")


def table(found: Sequence[Found], names: Sequence[str]) -> str:
    """A line for each fault, a column for each loader: what came of it; what came when it was over."""
    cells = {(each.case, each.loader): each for each in found}
    lines = ["| " + " | ".join(["", *(adaptor(name).title for name in names)]) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for case in CASES:
        row = [_cell(cells.get((case.name, name))) for name in names]
        if any(row):
            lines.append("| " + " | ".join([case.title, *row]) + " |")
    return "\n".join(lines) + "\n"


def _cell(found: Found | None) -> str:
    if found is None:
        return ""
    first, again = found.words
    return first if first == again else f"{first}; then {again}"


def details(found: Sequence[Found], names: Sequence[str]) -> str:
    """The errors, in the loaders' own words, cut to a line."""
    lines = []
    for name in names:
        lines += [f"### {adaptor(name).title} in faults", ""]
        for case in CASES:
            for each in (each for each in found if (each.case, each.loader) == (case.name, name)):
                errors = [outcome.error for outcome in (each.first, each.again) if outcome.error]
                words = "; then ".join(f"`{_line(error)}`" for error in dict.fromkeys(errors))
                if words:
                    lines.append(f"- {case.title}: {words}")
        lines.append("")
    return "\n".join(lines)


def _line(error: str) -> str:
    """An error's last line where a worker hands it on, else its first; without what would break a table."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    line = lines[-1] if "Caught " in lines[0] else lines[0]
    return _TEMPORARY.sub("...", line).replace("`", "'").replace("|", "/")[:_WIDTH]
