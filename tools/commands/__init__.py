"""The commands of `python3 -m tools`: a module each, found by its name.

Its docstring is the help. `RUN` names the function (`module:name`) that gets the parsed arguments and returns the exit
status; `FAILS` says when that is 1. `arguments`, if there is one, adds the command's arguments by argparse's
`add_argument`. A module imports only the standard library, since help must not need the environment.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python3 -m tools", description="The tools of an mdsx checkout.")
    tools = made.add_subparsers(required=True, metavar="TOOL")
    for name in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        module: Any = importlib.import_module(f"{__name__}.{name}")
        fails = getattr(module, "FAILS", "")
        end = f"Exit status 1 if {fails}." if fails else ""
        tool = tools.add_parser(name, help=module.__doc__, description=module.__doc__, epilog=end)
        tool.set_defaults(run=module.RUN)
        getattr(module, "arguments", lambda add: None)(tool.add_argument)
    return made


def some_of(kind: str, known: Sequence[str]) -> dict[str, Any]:
    """Return the settings of an option that takes some of `known`."""

    def names(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(known):
            raise argparse.ArgumentTypeError(f"unknown {kind} {unknown.pop()!r}; known are {', '.join(known)}")
        return text.split(",")

    return {"type": names, "metavar": "A,B", "help": f"of {', '.join(known)}"}
