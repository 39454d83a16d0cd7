"""How to declare a command: write a function with `@command(...)` in any module of this package. Its docstring is the
help. It need not be listed anywhere."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from mdsx.cli.output import complain
from mdsx.errors import MdsxError

Function = TypeVar("Function", bound=Callable[..., None])


class _Command(TyperCommand):
    """A command whose help shows no type for flags, as in `--json <bool>`: they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(getattr(error, "param", None), "name", None) == "sources" and hasattr(error, "message"):
                error.message = "Expected SRC... OUT."  # one argument alone counts as OUT
            raise


class Commands(TyperGroup):
    """Runs a command. An expected error becomes one line on stderr, never a traceback."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe is handled
        except MdsxError as error:
            complain(error)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(130) from None
        return result


def _without_types_of_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _typer(name: str, help: str, example: str, kind: type[TyperGroup] = Commands) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=kind,
        help=help,
        epilog=f"Example: {example}",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _typer(
    "mdsx",
    "Pack training samples into shards that stream, shuffle and resume exactly; inspect, check and repair them.",
    "mdsx info s3://bucket/corpus",
)


def group(name: str, help: str, *, example: str, kind: type[TyperGroup] = Commands) -> typer.Typer:
    """Add a group of commands."""
    made = _typer(name, help, example, kind)
    app.add_typer(made)
    return made


def command(example: str, of: typer.Typer = app) -> Callable[[Function], Function]:
    """Make a function a command of the group `of`. Its docstring is the help; each paragraph is rewrapped."""

    def add(function: Function) -> Function:
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        of.command(function.__name__, cls=_Command, help=text, epilog=f"Example: {example}")(function)
        return function

    return add
