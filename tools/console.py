"""What the tools print: a live line for each step on a terminal, plain lines elsewhere (a pipe, or CI)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Self

import rich.console
from rich.markdown import Markdown
from rich.status import Status
from rich.text import Text


class Step:
    """A piece of work with a title: `with console.step("Packing") as step`. It ends with a line that stays."""

    def __init__(self, console: Console, title: str) -> None:
        self.title = title
        self.result = ""  # for the closing line
        self.passed = True
        self._console = console
        self._started = time.monotonic()
        self._status = Status("", console=console.rich) if console.live else None

    def note(self, text: str, milestone: bool = False) -> None:
        """Show progress: on a terminal beside the title, elsewhere as a line for each milestone."""
        if self._status is not None:
            short = " ".join(text.split())[: max(20, shutil.get_terminal_size().columns - 50)]
            self._status.update(Text.assemble(self.title, "  ", (short, "dim")))
        elif milestone:
            self._console.say(f"     {text}")

    def __enter__(self) -> Self:
        if self._status is None:
            self._console.say(f"{self.title} ...")
        else:
            self._status.start()
            self.note("")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        good = self.passed and kind is None
        seconds = f" ({time.monotonic() - self._started:.1f} s)"
        if self._status is None:
            self._console.say(f"{self.title}: {self.result or 'done' if good else 'FAILED'}{seconds}")
        else:
            self._status.stop()
            mark, result = ("✓", "green") if good else ("✗", "red"), f": {self.result}" if self.result else ""
            line = Text.assemble(mark, " ", self.title, result, (seconds, "dim"))
            self._console.rich.print(line, soft_wrap=True)


class Console:
    """Where the tools print. `live`: whether lines may be redrawn; default: on a terminal, unless CI is set."""

    def __init__(self, live: bool | None = None, file: IO[str] | None = None) -> None:
        self.rich = rich.console.Console(highlight=False, file=file)
        self.live = self.rich.is_terminal and not os.environ.get("CI") if live is None else live

    def say(self, text: str = "", style: str | None = None) -> None:
        """Print a line without wrapping it."""
        if self.live:
            self.rich.print(Text(text, style=style or ""), soft_wrap=True)
        else:
            print(text, file=self.rich.file, flush=True)

    def page(self, markdown: str) -> None:
        """Print Markdown: rendered on a terminal, elsewhere as it is."""
        if self.rich.is_terminal:
            self.rich.print(Markdown(markdown))
        else:
            self.say(markdown)

    def step(self, title: str) -> Step:
        return Step(self, title)

    def run(self, title: str, command: Sequence[str], directory: Path) -> int:
        """Run a program as a step and return its status. Its output is printed, on a terminal only if it fails."""
        lines: list[str] = []
        with (
            self.step(title) as step,
            subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    if self.live:
                        step.note(lines[-1])
                    else:
                        self.say(lines[-1])
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
            step.passed = status == 0
            step.result = "" if not self.live else next((line for line in reversed(lines) if line.strip()), "")
        if status and self.live:
            for line in lines:
                self.say(line)
        return status


@contextmanager
def temporary_directory(prefix: str, given: str | None = None) -> Iterator[Path]:
    """A directory that is removed afterwards, or the one that is given, which is kept."""
    path = Path(mkdtemp(prefix=prefix) if given is None else given).absolute()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        if given is None:
            shutil.rmtree(path, ignore_errors=True)
