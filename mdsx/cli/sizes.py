"""`mdsx sizes`: store the sizes of a dataset's images."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.command import command
from mdsx.cli.options import DatasetUrl, IndexOption, Json, StorageOption, storage_options
from mdsx.cli.output import Bar, print_json, say


@command("mdsx sizes s3://bucket/pictures --column image")
def sizes(
    url: DatasetUrl,
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="NAME", help="The image column. Default: the only one of jpeg, png or webp."),
    ] = None,
    index: IndexOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Store the height and width of all images next to the index, for jobs that batch images of one shape
    (mdsx.Buckets).

    Shards are read once. Pillow reads the images' headers (pip install 'mdsx[images]'). Run it again after you repair
    or index the dataset again; `mdsx append` extends the files.
    """
    from mdsx.writer import write_sizes

    with Bar("reading sizes") as bar:
        options = storage_options(storage_option)
        found = write_sizes(url, column, index=index, storage_options=options, watch=bar.reach_samples)
    if as_json:
        fields = {"files": found.files, "column": found.column, "samples": found.samples, "missing": found.missing}
        print_json(fields)
        return
    without = f", {found.missing:,} of them without a size" if found.missing else ""
    say(f"{found.files[0]} and {found.files[1]}: {found.samples:,} sizes of column {found.column!r}{without}")
