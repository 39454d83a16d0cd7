"""`mdsx convert`: datasets from what people have already."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.output import Json, complain

EXAMPLE = (
    "mdsx convert tar 's3://bucket/laion-{00000..00999}.tar' s3://bucket/laion "
    "--column 'json=json?' --compression zstd --processes 8"
)
_SKIPPED = 3


def tar(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="Tars, plain or .gz or .zst: paths, globs, s3://; braces {0000..0099}."),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where the dataset goes: a path, file:// or s3://.")],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help="Type of a column; others are inferred. '?' behind it: may be absent."),
    ] = None,
    shard_size: Annotated[str, typer.Option(help="Largest size of an uncompressed shard.")] = "64MiB",
    compression: Annotated[str | None, typer.Option(help="zstd or zstd:LEVEL. Default: none.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Tars converted at once.")] = 1,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what is not sound, and report each.")] = False,
    as_json: Json = False,
) -> None:
    """Convert WebDataset tars, in the order given, to one dataset.

    Adjacent members with one name up to the first dot after the last slash are a sample; the rest of the name, in
    lower case, is the column. Directories and hidden files are left out. Types are inferred from the extension and a
    look at the first samples: cls, id, index int64; txt, text str; json json; npy its array; jpg, jpeg, png as encoded
    bytes; anything else bytes. The key goes to the column __key__.

    A tar that is cut, damaged or not closed, a missing member, a key that comes back, a column that is none, a value
    that does not fit: an error that names tar, member and offset, and no index is written. With --skip-bad the rest is
    converted. Run again after a kill, the same command goes on where it stopped; on a finished output it does nothing.

    With several processes and tars, each writes its own part-NNNNN/, and the parts are merged. The result does not
    depend on how many processes there are, as long as there are several.

    Exit status: 0 converted, 1 error, 2 wrong usage, 3 converted but something was skipped, 130 interrupted.
    """
    from mdsx.cli.printer import Printer
    from mdsx.convert import convert_tars
    from mdsx.convert.columns import parse_declared

    declared = parse_declared(column or ())
    watcher = Printer(as_json=as_json)
    try:
        with watcher.bar:
            conversion = convert_tars(
                sources,
                out,
                columns=declared,
                shard_size=shard_size,
                compression=compression,
                processes=processes,
                skip_bad=skip_bad,
                watcher=watcher,
            )
    except KeyboardInterrupt:
        complain("interrupted; the same command goes on from here", kind="")
        raise typer.Exit(130) from None
    watcher.conclude(conversion)
    if conversion.skipped:
        raise typer.Exit(_SKIPPED)
