"""What the tools print: a live line for each step on a terminal, plain lines elsewhere (a pipe, or CI)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import rich.console
from rich.markdown import Markdown
from rich.text import Text


class Step:
    """A piece of work in progress. The line that it ends with shows `result`, and whether it `passed`."""

    def __init__(self, console: Console, title: str) -> None:
        self.result, self.passed = "", True
        self.status = console.status(Text(title))  # shows nothing unless on a terminal
        self._console, self._title = console, title

    def note(self, text: str, milestone: bool = False) -> None:
        """Show progress: on a terminal beside the title, elsewhere as a line for each milestone."""
        if self._console.is_terminal:
            short = " ".join(text.split())[: max(20, self._console.width - 50)]
            self.status.update(Text.assemble(self._title, "  ", (short, "dim")))
        elif milestone:
            self._console.print(f"     {text}")


class Console(rich.console.Console):
    """Where the tools print. `live`: whether lines may be redrawn; default: on a terminal, unless CI is set."""

    def __init__(self, live: bool | None = None) -> None:
        live = False if live is None and os.environ.get("CI") else live
        super().__init__(force_terminal=live, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def page(self, markdown: str) -> None:
        """Print Markdown: rendered on a terminal, elsewhere as it is."""
        if self.is_terminal:
            self.print(Markdown(markdown), soft_wrap=False)
        else:
            self.print(markdown)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while the context lasts, and then a line that stays."""
        step, started = Step(self, title), time.monotonic()
        if not self.is_terminal:
            self.print(f"{title} ...")
        try:
            with step.status:
                yield step
        except BaseException:
            step.passed = False
            raise
        finally:
            mark, style = ("✓", "") if step.passed else ("✗", "red")
            line = f"{mark} {title}{step.result and f': {step.result}'}"
            self.print(Text.assemble((line, style), (f" ({time.monotonic() - started:.1f} s)", "dim")))

    def run(self, title: str, command: Sequence[str], directory: Path, *, shown_from: str | None = None) -> int:
        """Run a program as a step and return its status. It ends with the step, also if that is interrupted.

        Its output is printed. A terminal shows it only if the program fails, or from the line `shown_from`.
        """
        lines: list[str] = []
        with self.step(title) as step, subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        ) as process:  # fmt: skip
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    if self.is_terminal:
                        step.note(line)
                        step.result = line.strip() or step.result
                    else:
                        self.print(lines[-1])
                status = process.wait()
            finally:
                process.terminate()
            step.passed = status == 0
        if self.is_terminal:
            first = 0 if status else lines.index(shown_from) if shown_from in lines else len(lines)
            self.print("\n".join(lines[first:]), end="\n" if lines[first:] else "")
        return status


@contextmanager
def temporary_directory(prefix: str, kept: str | None = None) -> Iterator[Path]:
    """A directory that is removed afterwards, or `kept`."""
    with TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
        path = Path(kept or made).absolute()
        path.mkdir(parents=True, exist_ok=True)
        yield path
