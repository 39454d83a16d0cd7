"""Printing for all commands: results to stdout, everything else to stderr; bars only on a terminal.

All output passes through `visible`, because untrusted names and values could contain terminal escapes.
"""

from __future__ import annotations

import base64
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TextIO

import typer

from mdsx.base.progress import Progress
from mdsx.base.sizes import format_size
from mdsx.errors import MdsxError, UnsupportedError, visible


def say(text: str = "", *, to: TextIO | None = None) -> None:
    """Print `text`, with control characters made visible, on stdout or `to` another stream."""
    print(visible(text), file=to)


def complain(problem: object, kind: str = "error: ") -> None:
    """Print one line on stderr."""
    say(f"mdsx: {kind}{one_line(problem)}", to=sys.stderr)


def one_line(problem: object) -> str:
    return " ".join(str(problem).splitlines())


def print_json(value: object) -> None:
    """Print one line of strict JSON on stdout."""
    try:
        say(json.dumps(as_plain(value), ensure_ascii=False, allow_nan=False))
    except RecursionError:
        raise UnsupportedError("the value is nested too deeply to print") from None


def as_plain(value: Any) -> Any:
    """Return a value as types of strict JSON. Raise UnsupportedError if its JSON would be huge.

    A map becomes a list of [key, value] if two of its keys would become the same text, as 1 and "1" would.
    """
    np = sys.modules.get("numpy")  # if nothing has imported NumPy, no value is an array
    if np and isinstance(value, np.ndarray | np.generic):
        from mdsx.format import Refused, as_lists

        try:
            value = as_lists(value)
        except Refused as refused:
            message = "an empty array with this many dimensions cannot be printed"
            raise UnsupportedError(message, found=refused.found, expected=refused.expected) from None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return list(map(as_plain, value))
    if isinstance(value, Mapping):
        pairs = [[as_plain(key), as_plain(item)] for key, item in value.items()]
        found = {str(key): item for key, item in pairs}
        return found if len(found) == len(pairs) else pairs
    return value if value is None or isinstance(value, str | int | float) else str(value)


def print_table(rows: Iterable[tuple[str, object]], indent: str = "") -> None:
    """Print names and values in two columns. Nothing is shortened to fit the terminal."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        say(f"{indent}{name:{width}}  {value}")


def error_fields(error: MdsxError) -> dict[str, object]:
    """Return an error's fields, for programs."""
    return {"kind": type(error).__name__, "file": error.file, "place": error.place, "message": str(error)}


_LINE_EVERY = 30.0  # seconds


class Bar:
    """A progress bar in bytes on stderr, with rate and remaining time. Without a terminal, a line now and then.

    It is a context manager: what is printed inside it appears above the bar.
    """

    def __init__(self, doing: str) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            progress.TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task(doing, total=None, note="")
        self._lines, self._doing = not console.is_terminal, doing
        self._total, self._printed = 0, time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def reach_samples(self, progress: Progress) -> None:
        """Show the progress of a call that reads samples. Pass this method as `watch`."""
        self.expect(progress.of_size)
        self.reach(progress.size, f"{progress.samples:,} samples")

    def reach_shards(self, progress: Progress) -> None:
        """Show the progress of a call that reads shards. Pass this method as `watch`."""
        self.expect(progress.of_size)
        self.reach(progress.size, f"{progress.shards:,} of {progress.of_shards:,} shards")

    def expect(self, total: int) -> None:
        """Set the total number of bytes."""
        self._total = total
        self._progress.update(self._task, total=total)

    def reach(self, size: int, note: str) -> None:
        """Set the number of bytes done."""
        self._progress.update(self._task, completed=size, note=visible(note))
        if self._lines and time.monotonic() - self._printed > _LINE_EVERY:
            self._printed = time.monotonic()
            complain(f"{self._doing}: {format_size(size)} of {format_size(self._total)}, {note}", kind="")


class LongCall:
    """Shows the progress of a long call: a bar with a `note`, and each warning as soon as it is issued.

    It is a context manager. On an interrupt it exits with 130. If running the command again `continues`, it says so.
    """

    def __init__(self, doing: str, note: Callable[[Progress], str] | None = None, *, continues: bool = True) -> None:
        self._note = note or (lambda progress: f"{progress.samples:,} samples")
        self._continues = continues
        self.warnings: list[str] = []
        """All warnings so far."""
        self._bar = Bar(doing)
        self._catching = warnings.catch_warnings(record=True)
        self._caught: list[warnings.WarningMessage] = []

    def __enter__(self) -> Self:
        self._caught = self._catching.__enter__()
        warnings.simplefilter("always")
        self._bar.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._warn()
        self._bar.__exit__()
        self._catching.__exit__(None, None, None)
        if kind is KeyboardInterrupt and self._continues:
            complain("interrupted; the same command continues from here", kind="")
            raise typer.Exit(130) from None

    def watch(self, progress: Progress) -> None:
        """Show the warnings and the progress."""
        self._warn()
        self._bar.expect(progress.of_size)
        self._bar.reach(progress.size, self._note(progress))

    def _warn(self) -> None:
        for warning in self._caught[len(self.warnings) :]:
            text = str(warning.message)
            complain(text, kind="warning: ")
            self.warnings.append(text)
