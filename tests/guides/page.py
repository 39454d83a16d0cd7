"""A guide: its tables, and its programs, which are run as scripts. The environment of each peer imports this module."""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import dedent
from typing import Any

DOCS = Path(__file__).parent.parent.parent / "docs"


class Page:
    """A page of docs/, by its name."""

    def __init__(self, name: str) -> None:
        text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        _, *parts = re.split(r"^#+ (.*)\n", text, flags=re.MULTILINE)
        self.headings = parts[2::2]  # after the title
        self._sections = dict(zip(parts[::2], parts[1::2], strict=True))

    def blocks(self, heading: str, language: str = "python") -> list[str]:
        """Return the code below a heading, block by block."""
        found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", self._sections[heading], re.MULTILINE | re.DOTALL)
        return [dedent(block) for block in found]

    def code(self, heading: str) -> str:
        """Return the Python below a heading."""
        return "\n".join(self.blocks(heading))

    def rows(self, heading: str) -> dict[str, tuple[str, ...]]:
        """Return the table below a heading: the code in the first column -> the other columns."""
        found = re.findall(r"^\| (`.*?`) \|(.*)\|$", self._sections[heading], re.MULTILINE)
        others = {first: tuple(cell.strip() for cell in cells.split(" |")) for first, cells in found}
        return {name: cells for first, cells in others.items() for name in re.findall(r"`(.*?)`", first)}


def play(program: str, file: Path, **names: Any) -> dict[str, Any]:
    """Run a program as the script `file`, in the current directory, with `names` that it uses but does not define.

    Return its variables.
    """
    file.write_text(program, encoding="utf-8")
    return runpy.run_path(str(file.resolve()), names, "__main__")


def parameters(*calls: Callable[..., Any]) -> list[str]:
    """Return the arguments of some calls by name. `self` is none, and `*args` and `**kwargs` go to another call."""
    every = [each for call in calls for each in inspect.signature(call).parameters.values()]
    names = [each.name for each in every if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return list(dict.fromkeys(name for name in names if name != "self"))


def methods(kinds: Iterable[type], inherited: Iterable[type] = (object,)) -> list[str]:
    """Return the public methods and properties of some classes, without those of the others."""
    others = {name for kind in inherited for name in dir(kind)}
    return sorted({name for kind in kinds for name in dir(kind) if not name.startswith("_")} - others)
