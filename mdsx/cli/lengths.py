"""`mdsx lengths`: store the lengths of a dataset's samples."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.command import command
from mdsx.cli.options import DatasetUrl, IndexOption, Json, StorageOption, storage_options
from mdsx.cli.output import Bar, print_json, say


@command("mdsx lengths s3://bucket/corpus --column tokens")
def lengths(
    url: DatasetUrl,
    column: Annotated[
        str, typer.Option("--column", metavar="NAME", help="An array of one dimension, text, bytes, or an integer.")
    ],
    index: IndexOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Store the lengths of all samples next to the index, for jobs that pack samples (Pack, MaxTokens). Without the
    file, each node reads the lengths from the rows of all shards.

    A length is the number of values in an array of one dimension, the number of bytes in text and other values of
    variable size, or the value of an integer. Only rows are read; of Parquet files, only the column. Run it again after
    you repair or index the dataset again: readers ignore a file of lengths that does not match.
    """
    from mdsx.writer import write_lengths

    with Bar("reading lengths") as bar:
        options = storage_options(storage_option)
        found = write_lengths(url, column, index=index, storage_options=options, watch=bar.reach_samples)
    if as_json:
        fields = {"file": found.file, "column": found.column, "rule": found.rule, "samples": found.samples}
        print_json({**fields, "sum": found.sum, "mean": found.mean})
        return
    mean = "" if found.mean is None else f", {found.mean:,.1f} on average"
    say(f"{found.file}: {found.samples:,} lengths ({found.rule} of column {found.column!r}){mean}")
