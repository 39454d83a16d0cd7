"""`mdsx view`: browse datasets on a local web page."""

from __future__ import annotations

import json
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from mdsx.cli.command import command
from mdsx.cli.options import IndexOption, SnapshotOption, StorageOption, storage_options
from mdsx.cli.output import complain, say


@command("mdsx view s3://bucket/corpus")
def view(
    urls: Annotated[
        list[str], typer.Argument(metavar="URL", help="Finished datasets. Several are also shown as one mixture.")
    ],
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Show only these columns: their names, separated by commas.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="FILE", help="A tokenizer.json, to show rows of tokens as text.")
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[=JSON]",
            help="Show what mdsx.Image gives of a column, with its arguments: 'photo={\"size\": 224}'.",
        ),
    ] = None,
    audio: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN[=JSON]", help="Show what mdsx.Audio gives of a column, likewise."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, but open no browser.")] = False,
    index: IndexOption = None,
    snapshot: SnapshotOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Browse datasets on a local web page: columns and metadata, samples with their images, arrays and texts, shards
    and their checks, and the samples of each batch.

    The command prints the page's address, which only this machine can open. Samples of a remote dataset are read by
    range. Ctrl-C ends it.
    """
    from mdsx.decoding import Audio, Image
    from mdsx.view import Library, Opening, Tokenizer, check_installed, serve

    check_installed()
    opening = Opening(
        columns=None if columns is None else [name.strip() for name in columns.split(",")],
        storage_options=storage_options(storage_option),
        index=index,
        snapshot=snapshot,
        tokenizer=None if tokenizer is None else Tokenizer(tokenizer),
        decode=dict([*_decoders(Image, "--image", image), *_decoders(Audio, "--audio", audio)]) or None,
    )
    with serve(Library(urls, opening), port) as server:
        say(server.address)
        sys.stdout.flush()
        complain("serving until Ctrl-C", kind="")
        try:
            if not no_open:  # in a thread: a browser for the terminal keeps its caller waiting
                threading.Thread(target=webbrowser.open, args=[server.address], daemon=True).start()
            server.run()
        except KeyboardInterrupt:
            complain("ended", kind="")
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        os._exit(0)  # a request may be waiting minutes for its storage


def _decoders(make: Callable[..., Any], option: str, given: list[str] | None) -> Iterator[tuple[str, Any]]:
    """Yield the columns that an option names, each with its decoder. Raise BadParameter."""
    for text in given or ():
        column, equals, arguments = text.partition("=")
        try:
            found = json.loads(arguments) if equals else {}
            named = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
            yield column, make(**named)
        except (ValueError, AttributeError, TypeError) as error:
            hint = f"{option} is COLUMN, or COLUMN=JSON with arguments of mdsx.{make.__name__}: {text}: {error}"
            raise typer.BadParameter(hint) from None
