#!/usr/bin/env python3
"""mdsx from end to end on this machine, in about a minute: `python3 tools/quickstart.py`

Packs the sources of Python's standard library into tars, converts them onto a real S3 server, trains a small language
model from there on 2 processes, kills it, resumes it on 3, and shows that every sample was read exactly once. Makes the
project's environment first where it is not there. Leaves quickstart.png in the current directory and nothing else.
Exit status 1 if a promise was broken.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PICTURE = "quickstart.png"
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    if set(sys.argv[1:]) & {"-h", "--help"}:
        print(__doc__)
        return 0
    if len(sys.argv) > 1:
        print(f"tools/quickstart.py takes no arguments (found {sys.argv[1]!r})", file=sys.stderr)
        return 2
    sys.path.insert(0, str(_ROOT))
    from tools._environment import enter_environment

    try:
        enter_environment()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run()


def run() -> int:
    """The quickstart in the environment that is there. However it ends, it cleans up first."""
    from tools.quickstart_parts.job import JobFailed
    from tools.quickstart_parts.story import tell

    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    try:
        return 0 if tell(Path(_PICTURE).absolute()) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except JobFailed as error:
        print(error, file=sys.stderr)
        return 1


def _interrupt(number: int, frame: object) -> None:
    """End as by Ctrl-C; from here on, more of these would only disturb the cleaning up."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
