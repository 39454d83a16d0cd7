"""The command: what is chosen, how it goes, what is written."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

from tools.bench.machine import machine, today, versions
from tools.bench.processes import CallFailed
from tools.conformance.adaptors import adaptor
from tools.console import Console
from tools.faults.cases import CASES, NAMES
from tools.faults.report import details, table
from tools.faults.run import Found, Loaders
from tools.marks import put_between_marks
from tools.peers.environments import CannotInstall, PeerEnvironment

_ROOT = Path(__file__).resolve().parent.parent.parent


def run(given: argparse.Namespace) -> int:
    """1 if mdsx broke a promise. Everything it started has ended then."""
    console = Console()
    found: list[Found] = []
    directory = Path(mkdtemp(prefix="mdsx-faults-"))
    try:
        with Loaders(directory, given.limit) as loaders:
            for name in given.loaders or NAMES:
                with console.step(f"{adaptor(name).title} in faults") as step:
                    try:
                        _install(name)
                        for case in CASES:
                            if name in case.loaders() and (not given.cases or case.name in given.cases):
                                found.append(loaders.run(name, case))
                                step.note(f"{case.title}: {'; again: '.join(found[-1].words)}", milestone=True)
                    except (CannotInstall, CallFailed) as error:
                        step.passed, step.result = False, str(error)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    names = [name for name in NAMES if any(each.loader == name for each in found)]
    text = table(found, names) + "\n" + details(found, names)
    print(text)
    if given.json:
        Path(given.json).write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    if given.docs:
        page = _ROOT / "docs" / "reliability.md"
        put_between_marks(page, "faults", "table", table(found, names))
        put_between_marks(page, "faults", "details", details(found, names))
        put_between_marks(page, "faults", "versions", _versions(names))
    return int(any(each.loader == "mdsx" and not kept(each) for each in found))


def kept(found: Found) -> bool:
    """What mdsx promises: nothing wrong or hung, and exact when the fault is over."""
    first = found.first
    return (
        not (first.wrong or first.repeated or first.hung)
        and (bool(first.error and first.named) or found.first.word == "exact")
        and found.again.word == "exact"
    )


def _install(name: str) -> None:
    requirements = adaptor(name).requirements
    if requirements is not None and not PeerEnvironment(requirements).complete():
        PeerEnvironment(requirements).install()


def _versions(names: Sequence[str]) -> str:
    here, found = machine(), versions(name for name in names if name != "mdsx")
    packages = ", ".join(f"{name} {number}" for name, number in found.items())
    return f"{today()}; {here['cores']} cores, {here['memory']}, {here['system']}; {packages}.\n"
