"""A terminal in place of stderr."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress


@contextmanager
def terminal() -> Iterator[list[str]]:
    """Make stderr a terminal of 120 columns. Afterwards, the list that it yields has what was sent to it."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    sent = list[str]()
    try:
        with open(theirs, "w", encoding="utf-8") as stream, redirect_stderr(stream):
            assert sys.stderr.isatty()
            yield sent
        with suppress(OSError):  # EIO, after everything was read
            while text := os.read(ours, 2**16).decode():
                sent.append(text)
    finally:
        os.close(ours)
