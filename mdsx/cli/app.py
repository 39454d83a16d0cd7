"""The commands put together, and the one place where an error becomes a line and an exit status."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import mdsx
from mdsx.cli import cat, convert, info, merge, verify
from mdsx.cli.output import complain
from mdsx.errors import MdsxError


class _Commands(TyperGroup):
    """Runs a command; a user's mistake is one line on stderr, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here a closed pipe is still handled
        except MdsxError as error:
            complain(error)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(130) from None
        return result


app = typer.Typer(
    name="mdsx",
    cls=_Commands,
    help="Pack training samples into shards that stream, shuffle and resume exactly; look into them, verify them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(convert.app, name="convert")
app.command("info", epilog=info.EXAMPLE)(info.info)
app.command("verify", epilog=verify.EXAMPLE)(verify.verify)
app.command("cat", epilog=cat.EXAMPLE)(cat.cat)
app.command("merge", epilog=merge.EXAMPLE)(merge.merge)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mdsx {mdsx.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command line of this process, and exit."""
    app(prog_name="mdsx")
