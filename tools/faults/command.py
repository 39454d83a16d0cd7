"""The command: runs the chosen cases of the chosen loaders, and writes a table and the errors that they raised."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tools import tables
from tools.console import Console, temporary_directory
from tools.environment import install_missing
from tools.faults.cases import CASES, NAMES
from tools.faults.run import Found, loaders_in
from tools.machine import machine, today, versions
from tools.peers import peer
from tools.processes import ROOT, CallFailed

_WIDTH = 200
_TEMPORARY = re.compile(r"/\S*/mdsx-faults-[^/]+/\d+")


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx broke a promise. Everything it started has ended then."""
    console = Console()
    found: list[Found] = []
    names = given.loaders or NAMES
    missing = install_missing(console, [peer(name).environment for name in names])
    with temporary_directory("mdsx-faults-") as directory, loaders_in(directory, given.limit) as loaders:
        for name in (name for name in names if peer(name).environment not in missing):
            with console.step(f"{peer(name).title} in faults") as step:
                try:
                    for case in CASES:
                        if name in case.loaders() and case.name in (given.cases or [case.name]):
                            found.append(loaders.run(name, case))
                            step.note(f"{case.title}: {'; again: '.join(found[-1].words)}", milestone=True)
                except CallFailed as error:
                    step.passed, step.result = False, str(error)
    names = [name for name in NAMES if any(each.loader == name for each in found)]
    print(table(found, names) + "\n" + details(found, names))
    if given.json:
        Path(given.json).write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    if given.docs:
        page = ROOT / "docs" / "reliability.md"
        tables.put_between_marks(page, "faults", "table", table(found, names))
        tables.put_between_marks(page, "faults", "details", details(found, names))
        tables.put_between_marks(page, "faults", "versions", _versions(names))
    return int(any(each.loader == "mdsx" and not kept(each) for each in found))


def kept(found: Found) -> bool:
    """What mdsx promises: nothing wrong, no hang, and exact when the fault is over."""
    first = found.first
    return (
        not (first.wrong or first.repeated or first.hung)
        and (bool(first.error and first.named) or first.word == "exact")
        and found.again.word == "exact"
    )


def _versions(names: Sequence[str]) -> str:
    here, found = machine(), versions(name for name in names if name != "mdsx")
    packages = ", ".join(f"{name} {number}" for name, number in found.items())
    return f"{today()}; {here['cores']} cores, {here['memory']}, {here['system']}; {packages}.\n"


def table(found: Sequence[Found], names: Sequence[str]) -> str:
    """A line for each fault and a column for each loader: the outcome under the fault; then after it."""
    cells = {(each.case, each.loader): "; then ".join(dict.fromkeys(each.words)) for each in found}
    rows = [[case.title, *(cells.get((case.name, name), "") for name in names)] for case in CASES]
    return tables.table(["", *(peer(name).title for name in names)], [row for row in rows if any(row[1:])])


def details(found: Sequence[Found], names: Sequence[str]) -> str:
    """The errors, in the loaders' own words, cut to a line."""
    errors = {(each.case, each.loader): (each.first.error, each.again.error) for each in found}
    lines = []
    for name in names:
        lines += [f"### {peer(name).title} in faults", ""]
        for case in CASES:
            words = dict.fromkeys(f"`{_line(error)}`" for error in errors.get((case.name, name), ()) if error)
            if words:
                lines.append(f"- {case.title}: {'; then '.join(words)}")
        lines.append("")
    return "\n".join(lines)


def _line(error: str) -> str:
    """The first line, without characters that would break a table."""
    line = error.strip().partition("\n")[0]
    return _TEMPORARY.sub("...", line).replace("`", "'").replace("|", "/")[:_WIDTH]
