#!/usr/bin/env python3
"""mdsx under load and faults, for as long as you like: `python3 tools/soak.py [--minutes 10] [--seed N]`

Eight readers of three datasets share a cache of a third of their size, over a real S3 server behind a proxy that breaks
requests; they and their workers are killed at random and resumed, also as other numbers of ranks; bits of cached files
are flipped; two writers are killed and resumed beside them. Every sample that is delivered is checked and counted.
Exit status 1 if anything was wrong, lost, repeated, leaked or hung.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    sys.path.insert(0, str(_ROOT))
    given = _parse(sys.argv[1:])
    from tools._environment import enter_environment

    try:
        enter_environment()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run(given)


def run(given: argparse.Namespace) -> int:
    """The soak in the environment that is there. However it ends, it ends all that it started."""
    from tools.marks import put_between_marks
    from tools.soak_parts.run import Soak

    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    print(f"Soaking for {given.minutes:g} minutes, --seed {given.seed}", flush=True)
    try:
        report = Soak(given.minutes, given.seed, lambda text: print(text, flush=True)).run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    for name, text in report.rows():
        print(f"{name}: {text}")
    for problem in report.problems():
        print(f"PROBLEM: {problem}")
    if given.json:
        Path(given.json).write_text(report.to_json())
    if given.docs:
        put_between_marks(_ROOT / "docs" / "reliability.md", "soak", "figures", report.markdown())
    print(report.verdict())
    return 1 if report.problems() else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/soak.py", description=__doc__.split("\n\n")[1])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--seed", type=int, help="of all that is planned; drawn and printed where it is not given")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/reliability.md")
    given = parser.parse_args(arguments)
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(10**6)
    return given


def _interrupt(number: int, frame: object) -> None:
    """End as by Ctrl-C; from here on, more of these would only disturb the cleaning up."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
