"""The command: prints the tables, and with `--docs` writes them and the pictures of docs/shuffling.md."""

from __future__ import annotations

import argparse

from tools.console import Console
from tools.pages import put_between_marks
from tools.processes import ROOT
from tools.shuffling import pictures, tables

PAGE = ROOT / "docs" / "shuffling.md"
PICTURES = ROOT / "docs" / "pictures"


def run(given: argparse.Namespace) -> int:
    """Return 0: nothing here fails but by an exception."""
    console = Console()
    for name, make in tables.TABLES.items():
        with console.step(f"Table: {name}"):
            text = make()
            console.page(text)
            if given.docs:
                put_between_marks(PAGE, "shuffling", name, text)
    if given.docs:
        PICTURES.mkdir(exist_ok=True)
        for name, draw in pictures.PICTURES.items():
            with console.step(f"Picture: {name}"):
                draw(PICTURES / f"shuffling-{name}.png")
    return 0
