"""The tools of a checkout: `python3 -m tools check`, `python3 -m tools quickstart`, ...

Needs only Python 3.11: the project's environment is created on first use, and the tool then runs in it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tools.environment import enter_environment, require_python

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    require_python()
    given = parse(sys.argv[1:])
    try:
        enter_environment()
    except KeyboardInterrupt:
        sys.exit(130)
    return run(given)


def run(given: argparse.Namespace) -> int:
    """Run a tool in the current environment and return its exit status. It cleans up, also when interrupted."""
    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    try:
        return int(importlib.import_module(f"tools.{given.tool}").run(given))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt once: further signals would only disturb the cleanup."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. The module of the tool is in `tool`."""
    from tools.conformance import matrix
    from tools.faults import cases
    from tools.peers import NAMES
    from tools.scale import options as scale

    parser = argparse.ArgumentParser(prog="python3 -m tools", description="The tools of an mdsx checkout.")
    tools = parser.add_subparsers(required=True, metavar="TOOL")

    def tool(module: str, text: str, fails: str = "") -> Callable[..., Any]:
        """Add the tool that a module runs; `fails`: if what. Return the function that adds its arguments."""
        end = f"Exit status 1 if {fails}." if fails else ""
        made = tools.add_parser(module.partition(".")[0], help=text, description=text, epilog=end)
        made.set_defaults(tool=module)
        return made.add_argument

    add = tool("check", "Run lint, types and tests.", "a step failed")
    text = "also run slow tests, and those with Ray and Spark: an hour; as root on Debian, install Chromium for them"
    add("--all", action="store_true", help=text)

    tool("api", "Write docs/api.md from the docstrings.")

    text = (
        "Train from a cloud, kill the training, resume it, and check that each sample was read exactly once: a minute."
    )
    add = tool("quickstart.command", text, "a promise was broken")
    add("--documents", type=int, metavar="N", default=1600, help="use N documents (default 1600)")
    add("--storage", choices=["s3", "gs", "az"], default="s3", help="the kind of the local server (default s3)")

    text = "Measure mdsx, its peers and the limits of the machine side by side."
    add = tool("bench.run", text, "mdsx failed in some subject; missed goals are no failure")
    add("subjects", nargs="*", metavar="SUBJECT", help="names or patterns (loader-*); default: all")
    add("--list", action="store_true", help="list the names of the subjects")
    add("--rounds", type=int, default=5, help="turns of each contestant (default 5)")
    add("--quick", dest="scale", action="store_const", const=0.1, default=1.0, help="use a tenth of the samples")
    add("--scale", type=float, default=1.0, help="use another share of the samples")
    add("--loaders", type=lambda text: text.split(","), default=[], metavar="A,B", help="only these, such as litdata")
    add("--scratch", metavar="DIR", help="keep and reuse the datasets that are written there")
    add("--load", action="append", default=[], metavar="FILE", help="reuse results of earlier --json")
    add("--json", metavar="FILE", help="write every figure of every round")
    add("--markdown", action="store_true", help="write docs/benchmarks.md; without SUBJECT, also README.md's table")

    text = "Run, kill and resume data loaders, and count the samples that they lost and repeated."
    add = tool("conformance.command", text, "mdsx is not exact in some cell")
    add("--loaders", **_names_of("loader", NAMES))
    add("--cells", **_names_of("cell", [cell.name for cell in matrix.cells()]))
    add("--quick", action="store_true", help="a few cells, and mdsx alone unless others are named")
    add("--seed", type=int, default=matrix.SEED, help=f"draws the steps of the kills (default {matrix.SEED})")
    add("--limit", type=float, default=matrix.LIMIT, help=f"seconds for each run (default {matrix.LIMIT:.0f})")
    add("--output", metavar="DIR", help="write conformance.md, .json and .png there")
    add("--keep", metavar="DIR", help="run in this empty directory; keep datasets, logs and checkpoints")
    add("--docs", action="store_true", help="write the tables into docs/conformance.md and README.md")

    text = "Run data loaders under faults of storage, disk and processes, and report what each does."
    add = tool("faults.run", text, "mdsx broke a promise in one")
    add("--loaders", **_names_of("loader", cases.NAMES))
    add("--cases", **_names_of("case", [case.name for case in cases.CASES]))
    add("--limit", type=float, default=cases.LIMIT, help=f"seconds for each batch (default {cases.LIMIT:.0f})")
    add("--docs", action="store_true", help="write the table into docs/reliability.md")

    text = "Print the numbers of a large run: computed for a petabyte, and measured at full count with small objects."
    add = tool("scale.run", text, "a subject failed")
    scale.add_arguments(add)

    text = "Run trainings over a limited link, simulate the same, and print both: bytes, requests and waits."
    add = tool("simulated.run", text, "bytes or requests differ in some setting")
    add("--quick", action="store_true", help="an eighth of the samples")
    add("--docs", action="store_true", help="write the tables into docs/simulate.md")

    tool("shuffling.run", "Measure how well mdsx and other shuffles mix, with as many bytes held at a time.")(
        "--docs", action="store_true", help="write the tables and the pictures of docs/shuffling.md"
    )

    text = "Run mdsx under load and faults, kill and resume readers and writers, and check every delivered sample."
    add = tool("soak.run", text, "anything was wrong, lost, repeated, leaked or hung")
    add("--minutes", type=float, default=10.0, help="how long (default 10)")
    add("--seed", type=int, default=random.randrange(10**6), help="of everything that is planned (default: drawn)")
    add("--json", metavar="FILE", help="write all figures there")
    add("--docs", action="store_true", help="write the figures into docs/reliability.md")
    return parser.parse_args(arguments)


def _names_of(kind: str, known: Sequence[str]) -> dict[str, Any]:
    """The settings of an option that takes some of `known`."""

    def names(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(known):
            raise argparse.ArgumentTypeError(f"unknown {kind} {unknown.pop()!r}; known are {', '.join(known)}")
        return text.split(",")

    return {"type": names, "metavar": "A,B", "help": f"of {', '.join(known)}"}


if __name__ == "__main__":
    sys.exit(main())
