#!/usr/bin/env python3
"""Loaders in faults: `python3 -m tools.faults`, or `python3 tools/faults`. See docs/reliability.md."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    sys.path[:] = [str(_ROOT), *(entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent)]
    from tools._environment import enter_environment

    try:
        enter_environment()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    from tools.faults import command

    return command.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
