"""The `mdsx` command: reads the command line, calls the library, prints. It computes nothing.

One command, one file. What a command found goes to stdout, as text for people or as JSON (`--json`); progress, what was
skipped, and errors go to stderr. Exit status: 0 fine, 1 an error or damage found, 2 the command line is wrong, 3 a
conversion that skipped something, 130 interrupted.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command of this process's arguments, and exit with its status."""
    from mdsx.cli.app import run

    run()
