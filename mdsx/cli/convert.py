"""`mdsx convert`: datasets from what people have already."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mdsx.cli.output import ConnectTimeout, Json, complain

EXAMPLE = (
    "mdsx convert tar 's3://bucket/laion-{00000..00999}.tar' s3://bucket/laion "
    "--rename 'image=jpg;png;webp' --nan null --on-error skip --compression zstd --processes 8"
)
_SKIPPED = 3


class KeyUntil(StrEnum):
    FIRST_DOT = "first-dot"
    LAST_DOT = "last-dot"


class Nan(StrEnum):
    ERROR = "error"
    NULL = "null"


class OnError(StrEnum):
    RAISE = "raise"
    SKIP = "skip"


def tar(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="Tars, plain or .gz or .zst: paths, globs, s3://; braces {0000..0099}."),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where the dataset goes: a path, file:// or s3://.")],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help="Type of a column; others are inferred. With '?', it may be absent."),
    ] = None,
    key_until: Annotated[
        KeyUntil, typer.Option(help="Where the key ends in a member's name; what follows is the column.")
    ] = KeyUntil.FIRST_DOT,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="NEW=OLD[;OLD...]", help="Members with these extensions become the column NEW."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave out members with this extension or file name.")
    ] = None,
    nan: Annotated[Nan, typer.Option(help="NaN and Infinity in JSON, which are not JSON.")] = Nan.ERROR,
    on_error: Annotated[
        OnError, typer.Option(help="What is not sound: end with an error, or leave it out and report it.")
    ] = OnError.RAISE,
    shard_size: Annotated[str, typer.Option(help="Largest size of an uncompressed shard.")] = "64MiB",
    compression: Annotated[str | None, typer.Option(help="zstd or zstd:LEVEL. Default: none.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Tars converted at once.")] = 1,
    connect_timeout: ConnectTimeout = None,
    as_json: Json = False,
) -> None:
    """Convert WebDataset tars, in the order given, to one dataset.

    Adjacent members with one name up to the first dot after the last slash (with --key-until last-dot: up to the last
    one) are a sample; the rest of the name, in lower case, is the column. Directories and hidden files are left out.
    Types are inferred from the extension and a look at the first samples: cls, id, index int64, or str where they are
    no numbers; txt, text str; json json; npy its array; jpg, jpeg, png as encoded bytes; anything else bytes. The key
    goes to the column __key__.

    --rename 'image=jpg;jpeg;png' makes one column of several extensions: bytes, unless all mean one type. --drop README
    leaves out files that belong to no sample. --nan null reads NaN and Infinity in JSON, which Python writes, as null.

    A tar that is cut, damaged or not closed, a missing member, a key that comes back, a column that is none, a value
    that does not fit: an error that names tar, member and offset, and no index is written. With --on-error skip the
    rest is converted. Run again after a kill, the same command goes on where it stopped; on a finished output it does
    nothing but report again what was skipped.

    With several processes and tars, each writes its own part-NNNNN/, and the parts are merged. The result does not
    depend on how many processes there are, as long as there are several.

    Exit status: 0 converted, 1 error, 2 wrong usage, 3 converted but something was skipped, 130 interrupted.
    """
    from mdsx.cli.printer import Printer
    from mdsx.convert import convert_tars
    from mdsx.convert.columns import parse_declared
    from mdsx.convert.names import parse_renames

    renames = parse_renames(rename or ())
    declared = parse_declared(column or (), renames)
    watcher = Printer(as_json=as_json)
    try:
        with watcher.bar:
            conversion = convert_tars(
                sources,
                out,
                columns=declared,
                key_until=key_until,
                rename=renames,
                drop=drop or (),
                nan=nan.value,
                on_error=on_error.value,
                shard_size=shard_size,
                compression=compression,
                processes=processes,
                connect_timeout=connect_timeout,
                watch=watcher,
            )
    except KeyboardInterrupt:
        complain("interrupted; the same command goes on from here", kind="")
        raise typer.Exit(130) from None
    watcher.conclude(conversion)
    if conversion.skipped:
        raise typer.Exit(_SKIPPED)
