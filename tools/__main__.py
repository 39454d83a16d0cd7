"""The tools of a checkout: `python3 -m tools check`, `python3 -m tools quickstart`, ...

Needs only Python 3.11: the project's environment is created on first use, and the tool then runs in it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.environment import enter_environment, require_python

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    require_python()
    given = parse(sys.argv[1:])
    try:
        enter_environment()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run(given)


def run(given: argparse.Namespace) -> int:
    """Run a tool in the current environment and return its exit status. It cleans up, also when interrupted."""
    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    try:
        status: int = importlib.import_module(f"tools.{given.tool}").run(given)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return status


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt once: further signals would only disturb the cleanup."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. The module of the tool is in `tool`."""
    parser = argparse.ArgumentParser(prog="python3 -m tools", description="The tools of an mdsx checkout.")
    tools = parser.add_subparsers(required=True, metavar="TOOL")

    def add(name: str, module: str, text: str, epilog: str = "") -> argparse.ArgumentParser:
        made = tools.add_parser(name, help=text, description=text, epilog=epilog)
        made.set_defaults(tool=module)
        return made

    add("check", "check", "Run lint, types and all tests.", "Exit status 1 if a step failed.")
    add("api", "api", "Write docs/api.md from the docstrings.")
    quickstart = add(
        "quickstart",
        "quickstart.command",
        "Train from a real S3 server, kill the training, resume it, and check that each sample was read exactly once.",
        "Takes about a minute and leaves only quickstart.png. Exit status 1 if a promise was broken.",
    )
    quickstart.add_argument("--documents", type=int, metavar="N", help="use N documents (default: all)")
    _add_bench(add("bench", "bench.command", "Measure mdsx, its peers and the limits of the machine side by side.",
                   "Exit status 1 if mdsx failed in some subject; missed goals are no failure."))  # fmt: skip
    _add_conformance(add("conformance", "conformance.command",
                         "Run, kill and resume data loaders, and count the samples that they lost and repeated.",
                         "Exit status 1 if mdsx is not exact in some cell."))  # fmt: skip
    _add_faults(add("faults", "faults.command",
                    "Run data loaders under faults of storage, disk and processes, and report what each does.",
                    "Exit status 1 if mdsx broke a promise in one."))  # fmt: skip
    _add_soak(add("soak", "soak.run",
                  "Run mdsx under load and faults: readers and writers are killed and resumed, storage and cache fail, "
                  "and every delivered sample is checked and counted.",
                  "Exit status 1 if anything was wrong, lost, repeated, leaked or hung."))  # fmt: skip
    return parser.parse_args(arguments)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="names or patterns (loader-*); default: all")
    parser.add_argument("--list", action="store_true", help="list the names of the subjects")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant (default 5)")
    parser.add_argument(
        "--quick", dest="scale", action="store_const", const=0.1, default=1.0, help="use a tenth of the samples"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="use another share of the samples")
    parser.add_argument("--loaders", type=_list, default=[], metavar="A,B", help="only these: mdsx, limit, litdata ...")
    parser.add_argument("--scratch", metavar="DIR", help="keep and reuse the datasets that are written there")
    parser.add_argument("--load", action="append", default=[], metavar="FILE", help="reuse results of earlier --json")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every round")
    parser.add_argument("--markdown", action="store_true", help="write docs/benchmarks.md and README.md's table")


def _add_conformance(parser: argparse.ArgumentParser) -> None:
    from tools.conformance.matrix import LIMIT, SEED, cells
    from tools.peers import NAMES

    _add_names(parser, "--loaders", "loader", NAMES)
    _add_names(parser, "--cells", "cell", [cell.name for cell in cells()])
    parser.add_argument("--quick", action="store_true", help="a few cells, and mdsx alone unless others are named")
    parser.add_argument("--seed", type=int, default=SEED, help=f"draws the steps of the kills (default {SEED})")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for each run (default {LIMIT:.0f})")
    parser.add_argument("--output", metavar="DIR", help="write conformance.md, .json and .png there")
    parser.add_argument("--json", action="store_true", help="JSON on standard output, progress on standard error")
    parser.add_argument("--keep", type=_empty, metavar="DIR", help="run there; keep datasets, logs and checkpoints")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/conformance.md and README.md")


def _add_faults(parser: argparse.ArgumentParser) -> None:
    from tools.faults.cases import CASES, LIMIT, NAMES

    _add_names(parser, "--loaders", "loader", NAMES)
    _add_names(parser, "--cases", "case", [case.name for case in CASES])
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for each run (default {LIMIT:.0f})")
    parser.add_argument("--json", metavar="FILE", help="write all results there")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/reliability.md")


def _add_soak(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    seed = random.SystemRandom().randrange(10**6)
    parser.add_argument("--seed", type=int, default=seed, help="of everything that is planned (default: drawn)")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/reliability.md")


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _add_names(parser: argparse.ArgumentParser, option: str, kind: str, known: Sequence[str]) -> None:
    def names(text: str) -> list[str]:
        for name in _list(text):
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown {kind} {name!r}; known are {', '.join(known)}")
        return _list(text)

    parser.add_argument(option, type=names, metavar="A,B", help=f"of {', '.join(known)}")


def _empty(text: str) -> str:
    if Path(text).exists() and any(Path(text).iterdir()):
        raise argparse.ArgumentTypeError(f"{text} is not empty")
    return text


if __name__ == "__main__":
    sys.exit(main())
