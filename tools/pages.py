"""What tools write in Markdown: tables, marked parts of pages, and on what the figures were measured."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import psutil

from tools.console import Console
from tools.environment import PeerEnvironment
from tools.peers import NAMES, Peer, peer
from tools.processes import ROOT

_OURS = ("mdsx", "numpy", "torch", "xxhash", "pillow")


def machine() -> dict[str, str]:
    """Processor, cores, memory, kernel; and the load before, which spoils figures."""
    processor = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": processor[1] if processor else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def versions(environments: Iterable[str]) -> dict[str, str]:
    found = {name: version(name) for name in _OURS}
    for environment in environments:
        if environment in NAMES:
            found |= versions_of(peer(environment))
        else:  # an engine
            found[f"py{environment}"] = PeerEnvironment(environment).version(f"py{environment}")
    return found


def versions_of(loader: Peer) -> dict[str, str]:
    version_of = PeerEnvironment(loader.environment).version if loader.environment else version
    return {package: version_of(package) for package in loader.packages}


def commit() -> str:
    """The checkout's commit, with a + if files differ from it; empty outside of git."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def measured_on() -> str:
    """Say when and on what figures were measured: a line for the end of a table."""
    here = machine()
    return f"Measured {today()} on {here['cores']} cores, {here['memory']}, shared with others.\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table with the columns numbered in `right` aligned to the right."""
    rule = "".join("|--:" if number in right else "|---" for number in range(len(heads)))
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"| {' | '.join(heads)} |", f"{rule}|", *lines]) + "\n"


def marks(kind: str, name: str) -> tuple[str, str]:
    """Return the two marks around a generated text in a Markdown file."""
    return f"<!-- {kind}: {name} -->", f"<!-- end of {kind}: {name} -->"


def put_between_marks(path: Path, kind: str, name: str, text: str) -> None:
    """Replace the text between two `marks`."""
    whole = path.read_text()
    begin, end = marks(kind, name)
    before, found, rest = whole.partition(begin)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        raise ValueError(f"{path} has no marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n{text}{end}{after}")


def write_tables(
    page: Path, kind: str, tables: Mapping[str, Callable[[], str]], *, timed: Collection[str] = (), docs: bool
) -> int:
    """Print tables, those that are `timed` with the machine; with `docs`, put them between their marks too. Return 0:
    nothing here fails but by an exception."""
    console = Console()
    for name, make in tables.items():
        with console.step(f"Table: {name}"):
            text = make() + "\n" + measured_on() if name in timed else make()
            console.page(text)
            if docs:
                put_between_marks(page, kind, name, text)
    return 0
