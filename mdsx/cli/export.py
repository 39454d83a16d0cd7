"""`mdsx export`: write a dataset to files that other tools read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from mdsx.base.progress import Progress
from mdsx.base.sizes import format_count, format_size
from mdsx.cli.command import command, group
from mdsx.cli.options import (
    EngineOption,
    IndexOption,
    Json,
    KeyUntil,
    Nan,
    SourceOption,
    StorageOption,
    storage_options,
)
from mdsx.cli.output import LongCall, print_json, print_table, say

if TYPE_CHECKING:
    from mdsx.transfer.exporting import Export, ExportProgress


exporters = group(
    "export",
    "Write a dataset to files that other tools read.",
    example="mdsx export parquet s3://bucket/corpus s3://bucket/corpus-parquet --num-workers 8",
)

Url = Annotated[
    str, typer.Argument(metavar="DATASET", help="A dataset that mdsx reads: a path or a URL (docs/clouds.md).")
]
Out = Annotated[
    str, typer.Argument(metavar="OUT", help="An empty folder for the files: a path or a URL (docs/clouds.md).")
]
Column = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Export only this column; give it once for each column.")
]
Rename = Annotated[list[str] | None, typer.Option(metavar="NEW=OLD", help="Rename a column.")]
Drop = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Leave out a column.")]
FileSize = Annotated[str, typer.Option(help="About how many bytes of the dataset to put into a file.")]
FileSamples = Annotated[int | None, typer.Option(min=1, help="How many samples to put into a file, instead of a size.")]
NumWorkers = Annotated[
    int | None, typer.Option(min=1, help="How many files to make at once. Default: 1, or all CPUs of a cluster.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the export in OUT, but only once all new files are complete.")
]


@command("mdsx export tar s3://bucket/pictures pictures --rename jpg=image --num-workers 8", of=exporters)
def tar(
    dataset: Url,
    out: Out,
    column: Column = None,
    rename: Rename = None,
    drop: Drop = None,
    key_until: Annotated[
        KeyUntil, typer.Option(help="Where readers end the key in a name. Keys with dots need last-dot.")
    ] = KeyUntil.FIRST_DOT,
    file_size: FileSize = "256MiB",
    file_samples: FileSamples = None,
    num_workers: NumWorkers = None,
    engine: EngineOption = None,
    overwrite: Overwrite = False,
    index: IndexOption = None,
    storage_option: StorageOption = None,
    source_option: SourceOption = None,
    as_json: Json = False,
) -> None:
    """Export a dataset to WebDataset tars, data-00000.tar and so on.

    Each value becomes a member KEY.COLUMN: bytes and images as they are, str and numbers as text, json and lists as
    JSON, arrays as NumPy files. A null has no member. The key is the column __key__, or the sample's number.

    After a kill, the same command continues. The files have the same bytes for any number of processes.

    Exit status: 0 exported, 1 error, 2 wrong usage, 130 interrupted.
    """
    _run("tar", locals(), key_until=key_until.value)


@command("mdsx export parquet s3://bucket/corpus s3://bucket/corpus-parquet --num-workers 8", of=exporters)
def parquet(
    dataset: Url,
    out: Out,
    column: Column = None,
    rename: Rename = None,
    drop: Drop = None,
    compression: Annotated[
        str, typer.Option(help="zstd, snappy, gzip, brotli, lz4 or none; a level may follow: zstd:9.")
    ] = "zstd",
    row_group_size: Annotated[str, typer.Option(help="The most bytes of a row group in memory.")] = "64MiB",
    file_size: FileSize = "256MiB",
    file_samples: FileSamples = None,
    num_workers: NumWorkers = None,
    engine: EngineOption = None,
    overwrite: Overwrite = False,
    index: IndexOption = None,
    storage_option: StorageOption = None,
    source_option: SourceOption = None,
    as_json: Json = False,
) -> None:
    """Export a dataset to Parquet files, data-00000.parquet and so on.

    Columns that came from Parquet get back their types, such as timestamps, decimals and structs.

    After a kill, the same command continues. The files have the same bytes for any number of processes.

    Exit status: 0 exported, 1 error, 2 wrong usage, 130 interrupted.
    """
    _run("parquet", locals(), compression=compression, row_group_size=row_group_size)


@command("mdsx export jsonl s3://bucket/corpus corpus --column text --compression zstd", of=exporters)
def jsonl(
    dataset: Url,
    out: Out,
    column: Column = None,
    rename: Rename = None,
    drop: Drop = None,
    nan: Annotated[Nan, typer.Option(help="How to write NaN and infinities, which JSON does not have.")] = Nan.ERROR,
    compression: Annotated[str, typer.Option(help="none, gzip or zstd; a level may follow: zstd:9.")] = "none",
    file_size: FileSize = "256MiB",
    file_samples: FileSamples = None,
    num_workers: NumWorkers = None,
    engine: EngineOption = None,
    overwrite: Overwrite = False,
    index: IndexOption = None,
    storage_option: StorageOption = None,
    source_option: SourceOption = None,
    as_json: Json = False,
) -> None:
    """Export a dataset to JSON lines, data-00000.jsonl and so on: one object per sample, in UTF-8.

    Arrays become lists, json and msgpack columns their values, bytes and images base64 text.

    After a kill, the same command continues. The files have the same bytes for any number of processes.

    Exit status: 0 exported, 1 error, 2 wrong usage, 130 interrupted.
    """
    _run("jsonl", locals(), nan=nan.value, compression=compression)


def _run(kind: Literal["tar", "parquet", "jsonl"], given: dict[str, Any], **options: Any) -> None:
    """Run a command with the options that all of them share, and its own."""
    import mdsx

    with _Printer(as_json=given["as_json"]) as printer:
        export = mdsx.export(
            kind,
            mdsx.Dataset(
                given["dataset"], index=given["index"], storage_options=storage_options(given["source_option"])
            ),
            given["out"],
            columns=given["column"] or None,
            rename=_renames(given["rename"] or ()),
            drop=given["drop"] or (),
            file_size=given["file_size"],
            file_samples=given["file_samples"],
            num_workers=given["num_workers"],
            engine=given["engine"],
            overwrite=given["overwrite"],
            storage_options=storage_options(given["storage_option"]),
            watch=printer.watch,
            **options,
        )
    printer.conclude(export)


def _renames(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        new, _, old = text.partition("=")
        if not (new and old) or new in found:
            raise typer.BadParameter("--rename takes NEW=OLD, with each NEW once")
        found[new] = old
    return found


class _Printer(LongCall):
    """Also prints the columns and the result; with `as_json`, the result as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__("exporting")
        self._as_json = as_json
        self._begun = False

    def watch(self, progress: Progress) -> None:
        self._warn()
        if not self._begun:
            self._begun = True
            if not self._as_json and (progress.size < progress.of_size or not progress.of_size):  # else it was finished
                _print_plan(cast("ExportProgress", progress))
        super().watch(progress)

    def conclude(self, export: Export) -> None:
        files = format_count(len(export.files), "file")
        if self._as_json:
            print_json(
                {
                    "url": export.url,
                    "samples": export.samples,
                    "files": export.files,
                    "already": export.already,
                    "columns": export.columns,
                    "forms": export.forms,
                    "warnings": self.warnings,
                }
            )
        elif export.already:
            say(f"{export.url} was finished before: {format_count(export.samples, 'sample')} in {files}; nothing to do")
        else:
            say(f"{format_count(export.samples, 'sample')} in {files} in {export.url}")


def _print_plan(progress: ExportProgress) -> None:
    files = format_count(progress.files, "file")
    say(f"{format_size(progress.of_size)}, to {files} in {progress.url}; columns:")
    width = max(map(len, progress.columns.values()))
    rows = ((name, f"{kind:{width}}  {progress.forms[name]}") for name, kind in progress.columns.items())
    print_table(rows, indent="  ")
