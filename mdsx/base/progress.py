"""Progress of long calls: totals over their tasks, and a status line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from mdsx.errors import MdsxError, visible

_PERIOD = 0.5  # seconds
_COLUMNS = 80  # of a terminal that does not report its width


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long call: `verify`, `repair`, `convert`, `tokenize`, `export`, `index_parquet`, `index_tars`,
    `write_lengths` and `write_selection` pass it to their argument `watch`, which they call from one thread.

        mdsx.verify(url, watch=lambda progress: print(f"{progress.size / progress.of_size:.0%}"))

    Attributes:
        samples: Samples done.
        size: Bytes read, as stored; while indexing, the sizes of the files done.
        of_size: The total that `size` will reach.
        shards: Shards done; 0 in a conversion and an export.
        of_shards: All shards; 0 in a conversion, in an export, and while indexing.
        problems: Errors found since the last call. The `Verification` that `verify` returns has all of them.
    """

    samples: int
    size: int
    of_size: int
    shards: int = 0
    of_shards: int = 0
    problems: tuple[MdsxError, ...] = ()


class Totals:
    """Sums of numbers over tasks. Each task reports its own totals so far. A retried task reports some of them again,
    which are not counted twice.
    """

    def __init__(self, count: int) -> None:
        """`count`: how many numbers a task reports."""
        self.sums = [0] * count
        self._tasks: dict[Hashable, tuple[int, ...]] = {}

    def reach(self, task: Hashable, *numbers: int) -> None:
        """Note that a task has reached `numbers`."""
        before = self._tasks.get(task, (0,) * len(self.sums))
        after = tuple(map(max, before, numbers))
        self._tasks[task] = after
        self.sums = [total + new - old for total, new, old in zip(self.sums, after, before, strict=True)]


class StatusLine:
    """A line on stderr that is rewritten in place. Nothing is written unless stderr is a terminal or a notebook.

    A daemon thread writes `text()` twice a second, also while the call makes no progress. `close()` writes it a last
    time, and ends the thread and the line.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text, self._stream = text, sys.stderr
        self._notebook = type(self._stream).__module__.startswith("ipykernel")
        self._shown = 0  # characters
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        if self._stream is not None and (self._notebook or self._stream.isatty()):
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
        """Write with no control sequence but a carriage return, which notebooks understand too."""
        text = visible(self._text())
        with suppress(OSError, ValueError):  # stderr was closed
            if not self._notebook:
                text = text[: (os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS) - 1]
            self._stream.write(f"\r{text:{self._shown}}{end}")
            self._stream.flush()
        self._shown = len(text)
