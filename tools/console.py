"""What the tools print: a live line for each step on a terminal, plain lines elsewhere (a pipe, or CI)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import rich.console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text


class Step:
    """A piece of work that has a title: `with console.step("Packing") as step`. It ends with a line that stays."""

    def __init__(self, console: Console, title: str) -> None:
        self.title = title
        self.result = ""  # what the closing line says of it
        self.passed = True
        self._console = console
        self._started = time.monotonic()
        self._live: Progress | None = None

    def note(self, text: str, milestone: bool = False) -> None:
        """Say how it goes: on a terminal behind the title while the step runs, elsewhere as a line for milestones."""
        if self._live is not None:
            self._live.update(self._live.task_ids[0], note=_one_line(text))
        elif milestone:
            self._console.say(f"     {text}")

    def __enter__(self) -> Self:
        if self._console.live:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}", style="dim", markup=False),
            )
            self._live = Progress(*columns, console=self._console.rich, transient=True)
            self._live.add_task(self.title, total=None, note="")
            self._live.start()
        else:
            self._console.say(f"{self.title} ...")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        good = self.passed and kind is None
        mark, style = ("✓", "green") if good else ("✗", "red")
        seconds = f" ({time.monotonic() - self._started:.1f} s)"
        result = f": {self.result}" if self.result else ""
        if self._console.live:
            line = Text.assemble((mark, style), " ", self.title, result, (seconds, "dim"))
            self._console.rich.print(line, soft_wrap=True)
        else:
            self._console.say(f"{self.title}: {self.result or 'done' if good else 'FAILED'}{seconds}")


class Console:
    """Where the tools print. `live`: whether lines may be redrawn; default: on a terminal, unless CI is set."""

    def __init__(self, live: bool | None = None) -> None:
        self.rich = rich.console.Console(highlight=False)
        self.live = self.rich.is_terminal and not os.environ.get("CI") if live is None else live

    def say(self, text: str = "", style: str | None = None) -> None:
        """Print a line, whole however long it is."""
        if self.live:
            self.rich.print(Text(text, style=style or ""), soft_wrap=True)
        else:
            print(text, flush=True)

    def step(self, title: str) -> Step:
        return Step(self, title)

    def run(self, title: str, command: Sequence[str], directory: Path) -> int:
        """Run a program as a step, and return its status. Output is shown as it comes, on a terminal if it fails."""
        lines: list[str] = []
        with self.step(title) as step, _output_of(command, directory) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if self.live:
                    step.note(lines[-1])
                else:
                    self.say(lines[-1])
            status = process.wait()
            step.passed = status == 0
            step.result = "" if not self.live else next((line for line in reversed(lines) if line.strip()), "")
        if status and self.live:
            for line in lines:
                self.say(line)
        return status


@contextmanager
def _output_of(command: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The running program, its output in one pipe; ended with this block at the latest."""
    with subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def _one_line(text: str) -> str:
    return " ".join(text.split())[: max(20, shutil.get_terminal_size().columns - 50)]
