"""What the loaders did: a table, and the errors that they raised."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools import tables
from tools.faults.cases import CASES
from tools.faults.run import Found
from tools.peers import peer

_WIDTH = 200
_TEMPORARY = re.compile(r"/\S*/mdsx-faults-[^/]+/\d+")


def table(found: Sequence[Found], names: Sequence[str]) -> str:
    """A line for each fault and a column for each loader: the outcome under the fault; then after it."""
    cells = {(each.case, each.loader): _cell(*each.words) for each in found}
    rows = [[case.title, *(cells.get((case.name, name), "") for name in names)] for case in CASES]
    return tables.table(["", *(peer(name).title for name in names)], [row for row in rows if any(row[1:])])


def _cell(first: str, again: str) -> str:
    return first if first == again else f"{first}; then {again}"


def details(found: Sequence[Found], names: Sequence[str]) -> str:
    """The errors, in the loaders' own words, cut to a line."""
    lines = []
    for name in names:
        lines += [f"### {peer(name).title} in faults", ""]
        for case in CASES:
            for each in (each for each in found if (each.case, each.loader) == (case.name, name)):
                errors = [outcome.error for outcome in (each.first, each.again) if outcome.error]
                words = "; then ".join(f"`{_line(error)}`" for error in dict.fromkeys(errors))
                if words:
                    lines.append(f"- {case.title}: {words}")
        lines.append("")
    return "\n".join(lines)


def _line(error: str) -> str:
    """A worker's error's last line, otherwise the first line, without characters that would break a table."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    line = lines[-1] if "Caught " in lines[0] else lines[0]
    return _TEMPORARY.sub("...", line).replace("`", "'").replace("|", "/")[:_WIDTH]
