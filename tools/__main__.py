"""The tools of a checkout: `python3 -m tools check`, `python3 -m tools quickstart`, ...

Needs only Python 3.11: the project's environment is created on first use, and the tool then runs in it.
"""

from __future__ import annotations

import argparse
import pkgutil
import signal
import sys

from tools.environment import enter_environment, require_python

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    require_python()
    from tools.commands import parser

    given = parser().parse_args()
    try:
        enter_environment()
    except KeyboardInterrupt:
        sys.exit(130)
    return run(given)


def run(given: argparse.Namespace) -> int:
    """Run a tool in the current environment and return its exit status. It cleans up, also when interrupted."""
    before = [signal.signal(number, _interrupt) for number in _ENDINGS]
    try:
        return int(pkgutil.resolve_name(given.run)(given))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        for number, handler in zip(_ENDINGS, before, strict=True):
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt once: further signals would only disturb the cleanup."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
