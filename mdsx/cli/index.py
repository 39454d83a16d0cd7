"""`mdsx index`: make existing files readable in place."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.cli.output import Bar, Json, StorageOption, complain, print_json, print_table, storage_options
from mdsx.progress import Progress
from mdsx.sizes import format_size

if TYPE_CHECKING:
    from mdsx.indexing import Indexed

PARQUET_EXAMPLE = "mdsx index parquet s3://bucket/corpus"


def parquet(
    urls: Annotated[
        list[str],
        typer.Argument(metavar="URL", help="Parquet files, and folders with *.parquet below them; all in one storage."),
    ],
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="Type of a column; others are inferred.")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The index's folder, if nothing can be written beside the files."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an index of other files.")] = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Index Parquet files, so that they stream, shuffle and resume in place: each row group is a shard.

    Reads the footers, not the data, and writes _mdsx-parquet.json to the folder, or to the common folder of several
    URLs: that folder is then the dataset's URL. Hidden files and those that begin with "_" are left out. All files must
    have the same columns. Run it again after files were added or replaced.

    Warns of row groups that are too large to shuffle by (more than 256 MiB decoded), of columns that are left out, and
    of folders such as year=2024, whose values do not become columns.
    """
    from mdsx.indexing import index_parquet

    problems: list[str] = []
    with Bar("indexing") as bar:

        def show(progress: Progress) -> None:
            bar.expect(progress.of_size)
            bar.reach(progress.size, f"{progress.samples:,} rows in {progress.shards:,} row groups")

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            options = storage_options(storage_option)
            found = index_parquet(
                urls, columns=_declared(column or ()), index=index, force=force, storage_options=options, watch=show
            )
        problems += [str(warning.message) for warning in caught]
    for problem in problems:
        complain(problem, kind="warning: ")
    if as_json:
        print_json({**_facts(found), "warnings": problems})
        return
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    print(f"{found.samples:,} rows in {found.shards:,} row groups of {files}, {format_size(found.size)}; columns:")
    print_table(found.columns.items(), indent="  ")
    print(f"the dataset is {found.url}" + (f", with index={index!r}" if index else ""))


def _declared(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if not (name and kind):
            raise typer.BadParameter("a column is declared as NAME=TYPE")
        found[name] = kind
    return found


def _facts(found: Indexed) -> dict[str, object]:
    return {
        "url": found.url,
        "files": found.files,
        "samples": found.samples,
        "shards": found.shards,
        "size": found.size,
        "columns": dict(found.columns),
        "left_out": dict(found.left_out),
        "large": [{"file": group.file, "group": group.group, "size": group.size} for group in found.large],
    }
