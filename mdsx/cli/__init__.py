"""The `mdsx` command: it parses the command line, calls the library and prints. It computes nothing.

Results go to stdout, as text or as JSON (`--json`); progress, skips and errors go to stderr.
Exit status: 0 success, 1 an error or damage, 2 wrong usage, 3 a conversion skipped something, 130 interrupted.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run this process's command line, and exit with its status."""
    from mdsx.cli.app import run

    run()
