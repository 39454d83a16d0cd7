"""How far a long call has come: what its tasks have done in all, and a line that shows it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from mdsx.errors import MdsxError, visible

_PERIOD = 0.5  # seconds
_COLUMNS = 80  # of a terminal that does not say how many it has


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `verify`, `repair`, `convert`, `tokenize`, `export`, `index_parquet`, `index_tars`, `write_lengths` or
    `write_selection` has come: they call their `watch` with it, from one thread.

        mdsx.verify(url, watch=lambda progress: print(f"{progress.size / progress.of_size:.0%}"))

    Attributes:
        samples: Samples done.
        size: Bytes read, as they are stored; while indexing, the sizes of the files that were looked at.
        of_size: The same, in all.
        shards: Shards done; 0 in a conversion and an export.
        of_shards: Shards in all; 0 in a conversion, in an export, and while indexing.
        problems: Errors found since the last call. After a verification, the `Verification` has all of them.
    """

    samples: int
    size: int
    of_size: int
    shards: int = 0
    of_shards: int = 0
    problems: tuple[MdsxError, ...] = ()


class Totals:
    """Sums over tasks of numbers that only grow. Each task reports its own so far; a task that is tried again repeats
    some of them, which counts once.
    """

    def __init__(self, count: int) -> None:
        """`count`: how many numbers each task reports."""
        self.sums = [0] * count
        self._tasks: dict[Hashable, tuple[int, ...]] = {}

    def reach(self, task: Hashable, *numbers: int) -> None:
        """Note that a task has reached `numbers`."""
        before = self._tasks.get(task, (0,) * len(self.sums))
        after = tuple(map(max, before, numbers))
        self._tasks[task] = after
        self.sums = [total + new - old for total, new, old in zip(self.sums, after, before, strict=True)]


class StatusLine:
    """One line on stderr that is written over again and again, if stderr is a terminal or a notebook; else nothing.

    A daemon thread writes `text()` twice a second, so the line also shows that nothing moves. `close()` writes it a
    last time, and ends the thread and the line.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text, self._stream = text, sys.stderr
        self._notebook = type(self._stream).__module__.startswith("ipykernel")
        self._shown = 0  # characters
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        if self._notebook or self._stream.isatty():
            self._thread = threading.Thread(target=self._run, name="mdsx-progress", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write the line a last time, and end it."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._end.set()
        if thread is not threading.current_thread():
            thread.join()
        self._write("\n")

    def _run(self) -> None:
        while not self._end.wait(_PERIOD):
            self._write()

    def _write(self, end: str = "") -> None:
        """Write without control sequences other than a carriage return, which notebooks understand too."""
        text = visible(self._text())
        with suppress(OSError, ValueError):  # it was closed
            if not self._notebook:
                text = text[: (os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS) - 1]
            self._stream.write(f"\r{text:{self._shown}}{end}")
            self._stream.flush()
        self._shown = len(text)
