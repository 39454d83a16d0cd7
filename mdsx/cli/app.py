"""The command line as a whole, and the one place where an error becomes a line and an exit status."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import mdsx
from mdsx.cli import append, cache, clean, convert, damage, doctor, export, index, lengths, merge, show, simulate, view
from mdsx.cli.output import complain, say
from mdsx.errors import MdsxError


class _Command(TyperCommand):
    """A command whose help does not show a type for flags, such as `--json <bool>`: they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(getattr(error, "param", None), "name", None) == "sources" and hasattr(error, "message"):
                error.message = "Give the sources, and after them the output."  # one argument alone counts as OUT
            raise


class _Commands(TyperGroup):
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


class _CacheCommands(_Commands):
    """`mdsx cache` without a command, or with options only, is `mdsx cache show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def _typer(name: str, help: str, example: str, kind: type[TyperGroup] = _Commands) -> typer.Typer:
    settings = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        name=name,
        cls=kind,
        help=help,
        epilog=f"Example: {example}",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=settings,
    )


def _add(group: typer.Typer, command: Callable[..., None], example: str) -> None:
    """Add a command. Its docstring is its help, with line breaks only between paragraphs."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    group.command(command.__name__, cls=_Command, help=text, epilog=f"Example: {example}")(command)


app = _typer(
    "mdsx",
    "Pack training samples into shards that stream, shuffle and resume exactly; inspect, check and repair them.",
    show.INFO_EXAMPLE,
)
converters = _typer("convert", "Make a dataset from existing data.", convert.CONVERT_EXAMPLE)
_add(converters, convert.tar, convert.TAR_EXAMPLE)
_add(converters, convert.jsonl, convert.JSONL_EXAMPLE)
_add(converters, convert.tfrecord, convert.TFRECORD_EXAMPLE)
_add(converters, convert.megatron, convert.MEGATRON_EXAMPLE)
_add(converters, convert.parquet, convert.PARQUET_EXAMPLE)
_add(converters, convert.mds, convert.MDS_EXAMPLE)
_add(converters, convert.hf, convert.HF_EXAMPLE)
app.add_typer(converters)
exporters = _typer("export", "Write a dataset to files that other tools read.", export.PARQUET_EXAMPLE)
_add(exporters, export.tar, export.TAR_EXAMPLE)
_add(exporters, export.parquet, export.PARQUET_EXAMPLE)
_add(exporters, export.jsonl, export.JSONL_EXAMPLE)
app.add_typer(exporters)
indexers = _typer("index", "Make existing files readable in place.", index.PARQUET_EXAMPLE)
_add(indexers, index.parquet, index.PARQUET_EXAMPLE)
_add(indexers, index.tar, index.TAR_EXAMPLE)
app.add_typer(indexers)
_add(app, show.info, show.INFO_EXAMPLE)
_add(app, view.view, view.VIEW_EXAMPLE)
_add(app, damage.verify, damage.VERIFY_EXAMPLE)
_add(app, damage.repair, damage.REPAIR_EXAMPLE)
_add(app, doctor.doctor, doctor.DOCTOR_EXAMPLE)
_add(app, show.cat, show.CAT_EXAMPLE)
_add(app, merge.merge, merge.MERGE_EXAMPLE)
_add(app, append.append, append.APPEND_EXAMPLE)
_add(app, lengths.lengths, lengths.LENGTHS_EXAMPLE)
_add(app, clean.clean, clean.CLEAN_EXAMPLE)
_add(app, simulate.simulate, simulate.SIMULATE_EXAMPLE)
caches = _typer(
    "cache",
    "Show what the local cache holds, and remove or add shards while jobs use it. Without a command: show.",
    cache.CACHE_EXAMPLE,
    _CacheCommands,
)
_add(caches, cache.show, cache.SHOW_EXAMPLE)
_add(caches, cache.prune, cache.PRUNE_EXAMPLE)
_add(caches, cache.clear, cache.CLEAR_EXAMPLE)
_add(caches, cache.warm, cache.WARM_EXAMPLE)
app.add_typer(caches)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"mdsx {mdsx.__version__}")
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
