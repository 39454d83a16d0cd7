"""`mdsx convert` and `mdsx merge`: make a dataset from existing data, or from parts."""

from __future__ import annotations

import json
import sys
import warnings
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import typer

from mdsx.cli.output import (
    Bar,
    Json,
    SourceOption,
    StorageOption,
    complain,
    error_fields,
    print_json,
    print_table,
    storage_options,
)
from mdsx.errors import UsageError, shown
from mdsx.progress import Progress
from mdsx.sizes import format_size

if TYPE_CHECKING:
    from mdsx.convert import Conversion, ConversionProgress


CONVERT_EXAMPLE = (
    "mdsx convert tar 's3://bucket/laion-{00000..00999}.tar' s3://bucket/laion "
    "--rename 'image=jpg;png;webp' --nan null --on-error skip --compression zstd --processes 8"
)
MERGE_EXAMPLE = "mdsx merge s3://bucket/corpus"
_SKIPPED = 3
_LISTED = 1000  # skips in JSON; all are counted, and all are printed on stderr


class KeyUntil(StrEnum):
    FIRST_DOT = "first-dot"
    LAST_DOT = "last-dot"


class Nan(StrEnum):
    ERROR = "error"
    NULL = "null"


class OnBadSample(StrEnum):
    RAISE = "raise"
    SKIP = "skip"


def tar(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="Tars, plain or .gz or .zst: paths, globs, s3://; braces {0000..0099}."),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where to write the dataset: a path, file:// or s3://.")],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help="Type of a column; others are inferred. With '?', it may be absent."),
    ] = None,
    key_until: Annotated[
        KeyUntil, typer.Option(help="Where the key ends in a member's name; the rest is the column.")
    ] = KeyUntil.FIRST_DOT,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="NEW=OLD[;OLD...]", help="Members with these extensions become the column NEW."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave out members with this extension or file name.")
    ] = None,
    nan: Annotated[Nan, typer.Option(help="How to read NaN and Infinity, which are not JSON.")] = Nan.ERROR,
    on_error: Annotated[
        OnBadSample, typer.Option(help="At an invalid sample or tar: stop with an error, or skip and report it.")
    ] = OnBadSample.RAISE,
    shard_size: Annotated[str, typer.Option(help="The largest size of an uncompressed shard.")] = "64MiB",
    compression: Annotated[str | None, typer.Option(help="zstd or zstd:LEVEL. Default: none.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many tars to convert at once.")] = 1,
    storage_option: StorageOption = None,
    source_option: SourceOption = None,
    as_json: Json = False,
) -> None:
    """Convert WebDataset tars, in the order given, to one dataset.

    Adjacent members with the same name up to the first dot after the last slash (with --key-until last-dot: up to the
    last one) are a sample; the rest of the name, in lower case, is the column. Directories and hidden files are left
    out. Types are inferred from the extension and the first samples: int64 for cls, id and index (str if they are not
    numbers), str for txt and text, json for json, the array's type for npy, jpeg or png for encoded images, bytes for
    anything else. The key becomes the column __key__.

    --rename 'image=jpg;jpeg;png' makes one column of several extensions: bytes, unless all mean the same type. --drop
    README leaves out files that belong to no sample. --nan null reads NaN and Infinity in JSON, which Python writes, as
    null.

    A tar that is truncated or damaged, a missing member, a duplicate key, a member without a column, and a value that
    does not fit are errors that name tar, member and offset; then no index is written. With --on-error skip the rest is
    converted. After a kill, the same command continues where it stopped; on a finished output it only reports again
    what was skipped.

    With several processes and tars, each process writes a part-NNNNN/ at a time, and the parts are merged. The result
    is the same for any number of processes above 1.

    Exit status: 0 converted, 1 error, 2 wrong usage, 3 converted but something was skipped, 130 interrupted.
    """
    from mdsx.convert import convert_tars, parse_declared, parse_renames

    renames = parse_renames(rename or ())
    declared = parse_declared(column or (), renames)
    try:
        with warnings.catch_warnings(record=True) as caught, _Printer(caught, as_json=as_json) as printer:
            warnings.simplefilter("always")
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
                storage_options=storage_options(storage_option),
                source_options=storage_options(source_option),
                watch=printer.watch,
            )
    except KeyboardInterrupt:
        complain("interrupted; the same command continues from here", kind="")
        raise typer.Exit(130) from None
    printer.conclude(conversion)
    if conversion.skipped:
        raise typer.Exit(_SKIPPED)


class _Printer:
    """Prints warnings, the columns, a bar, each skip, and the result; with `as_json`, the result as JSON.

    It is a context manager; `caught` collects the warnings that are issued within it.
    """

    def __init__(self, caught: list[warnings.WarningMessage], *, as_json: bool) -> None:
        self._caught, self._as_json = caught, as_json
        self._bar = Bar("converting")
        self._begun = False
        self._skipped = 0
        self._errors: list[dict[str, object]] = []
        self._warnings: list[str] = []

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._warn()
        self._bar.__exit__()

    def watch(self, progress: Progress) -> None:
        self._warn()
        if not self._begun:
            self._begun = True
            self._bar.expect(progress.of_size)
            if progress.size == 0 and not self._as_json:  # otherwise it was finished before
                _print_plan(cast("ConversionProgress", progress))
        for error in progress.problems:
            self._skipped += 1
            complain(error, kind="skipped: ")
            if len(self._errors) < _LISTED:
                self._errors.append(error_fields(error))
        self._bar.reach(progress.size, f"{progress.samples:,} samples")

    def _warn(self) -> None:
        for warning in self._caught[len(self._warnings) :]:
            text = str(warning.message)
            complain(text, kind="warning: ")
            self._warnings.append(text)

    def conclude(self, conversion: Conversion) -> None:
        if conversion.skipped > self._skipped:  # a finished conversion has kept only the first skips of each tar
            complain(f"{conversion.skipped - self._skipped:,} more", kind="skipped: ")
        skipped = f", {conversion.skipped:,} skipped" if conversion.skipped else ""
        if self._as_json:
            print_json(
                {
                    "url": conversion.url,
                    "samples": conversion.samples,
                    "skipped": conversion.skipped,
                    "already": conversion.already,
                    "columns": dict(conversion.columns),
                    "errors": self._errors,
                    "warnings": self._warnings,
                }
            )
        elif conversion.already:
            print(f"{conversion.url} was finished before: {conversion.samples:,} samples{skipped}; nothing to do")
        else:
            print(f"{conversion.samples:,} samples in {conversion.url}{skipped}")


def _print_plan(progress: ConversionProgress) -> None:
    parts = f", in {progress.parts} parts" if progress.parts > 1 else ""
    tars = "1 tar" if progress.tars == 1 else f"{progress.tars:,} tars"
    print(f"{tars}, {format_size(progress.of_size)}, to {progress.url}{parts}; columns:")
    print_table(progress.columns.items(), indent="  ")
    sys.stdout.flush()  # so that it precedes the skips in a log of both streams


def merge(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where part-00000/, part-00001/, ... are.")],
    parts: Annotated[
        int | None, typer.Option(min=1, help="How many parts there must be. Default: those found.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The metadata of the whole, an object. Default: the parts', if they agree."),
    ] = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Write one index for finished parts, in the order of their numbers. No shard is copied or changed.

    If a part is missing, unfinished or has other columns, the error names it and nothing is written.
    """
    import mdsx
    from mdsx.shards import read_index
    from mdsx.storage import open_storage

    given = None if metadata is None else _object(metadata)
    mdsx.merge(url, overwrite=overwrite, parts=parts, metadata=given, storage_options=storage_options(storage_option))
    storage = open_storage(url, storage_options(storage_option))
    index = read_index(storage)
    if as_json:
        print_json({"url": storage.url, "samples": index.samples, "shards": len(index.counts)})
    else:
        print(f"merged into {storage.url}: {index.samples:,} samples in {len(index.counts):,} shards")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UsageError(
            "--metadata must be a JSON object", found=shown(text), hint="""write --metadata '{"key": 1}'"""
        )
    return value
