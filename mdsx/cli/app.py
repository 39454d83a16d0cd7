"""The command line as a whole: all commands of this package."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated

import typer

from mdsx import __version__
from mdsx.cli.command import app
from mdsx.cli.output import say

__all__ = ["app", "run"]

for _module in iter_modules([str(Path(__file__).parent)]):  # importing a module adds its commands to `app`
    if _module.name != "app":
        import_module(f"mdsx.cli.{_module.name}")


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"mdsx {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run this process's command line, and exit."""
    for stream in (sys.stdout, sys.stderr):  # escape characters that the terminal cannot encode
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="mdsx")
