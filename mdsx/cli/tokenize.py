"""`mdsx tokenize`: turn text into rows of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from mdsx.base.progress import Progress
from mdsx.base.sizes import format_count
from mdsx.cli.columns import parse_declared
from mdsx.cli.command import command
from mdsx.cli.conversions import ConversionPrinter, OnBadSample
from mdsx.cli.options import (
    Compression,
    EngineOption,
    Json,
    Nan,
    Out,
    ShardSize,
    SourceOption,
    Sources,
    StorageOption,
    storage_options,
)
from mdsx.errors import UsageError, shown

if TYPE_CHECKING:
    from mdsx.transfer.tokenizing import TokenizationProgress


@command(
    "mdsx tokenize 's3://bucket/raw-{000..099}.jsonl.zst' s3://bucket/corpus --tokenizer tokenizer.json "
    "--end-of-text '<|endoftext|>' --keep id --on-error skip"
)
def tokenize(
    sources: Sources,
    out: Out,
    tokenizer: Annotated[
        str, typer.Option(metavar="FILE", help="A tokenizer.json; or bytes: the tokens are the bytes of UTF-8.")
    ],
    kind: Annotated[
        Literal["jsonl", "parquet", "tar", "text", "dataset"] | None,
        typer.Option(help="What the sources are. Default: what their suffixes say, or else a dataset."),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of the texts. Default: text; in tars, txt.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A column to store with the tokens; can be repeated.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="Type of a kept column; others are inferred.")
    ] = None,
    begin_of_text: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Insert a token before each document: its text or number.")
    ] = None,
    end_of_text: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Insert a token after each document: its text or number.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, metavar="L", help="Rows of L tokens. Default: a row is a document.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Default: uint16 for up to 65,536 tokens, otherwise uint32.")
    ] = None,
    per: Annotated[
        Literal["file", "line"] | None, typer.Option(help="What a document of a text file is. Default: file.")
    ] = None,
    nan: Annotated[Nan, typer.Option(help="How to read NaN and Infinity, which are not JSON.")] = Nan.ERROR,
    on_error: Annotated[
        OnBadSample, typer.Option(help="At a bad document or file: stop with an error, or skip and report it.")
    ] = OnBadSample.RAISE,
    shard_size: ShardSize = "64MiB",
    compression: Compression = None,
    num_workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes. Default: one for each CPU.")
    ] = None,
    engine: EngineOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the dataset at OUT, but only once the new one is complete.")
    ] = False,
    storage_option: StorageOption = None,
    source_option: SourceOption = None,
    as_json: Json = False,
) -> None:
    """Tokenize texts, and write a dataset whose rows are documents, or have L tokens each.

    SRC can be JSON lines (.jsonl, .ndjson, .json) and text files (.txt, .text, .md), plain, gzip or zstd; Parquet
    files; WebDataset tars; or datasets that mdsx reads: its own format, MDS, indexed Parquet files and tars.

    By default, a row is a document of any length, and the lengths are stored: Pack needs this. With --rows, documents
    are concatenated and cut into rows. Tokens that do not fill a row at the end of each stretch of sources (8 MiB or
    more) are dropped and counted.

    A line that is not JSON, a document whose text is missing, null or not text, or a value that does not fit its column
    stops the command with an error that names file, line and column, and no index is written. With --on-error skip, the
    other documents are tokenized. After a kill, the same command continues where it stopped. The result is the same for
    any number of processes.

    Needs the package tokenizers (pip install 'mdsx[tokenize]'), except for bytes.

    Exit status: 0 tokenized, 1 error, 2 wrong usage, 3 tokenized but something was skipped, 130 interrupted.
    """
    from mdsx.base.system import cores
    from mdsx.transfer.tokenizing import tokenize as tokenize_texts

    if num_workers is None and engine is None:
        num_workers = cores()
    with ConversionPrinter("tokenizing", _note, as_json=as_json) as printer:
        done = tokenize_texts(
            sources,
            out,
            tokenizer,
            kind=kind,
            text_column=text_column,
            keep=keep or (),
            columns=parse_declared(column or ()),
            begin_of_text=_token(begin_of_text),
            end_of_text=_token(end_of_text),
            rows=rows,
            dtype=dtype,
            on_error=on_error.value,
            shard_size=shard_size,
            compression=compression,
            num_workers=num_workers,
            engine=engine,
            overwrite=overwrite,
            storage_options=storage_options(storage_option),
            source_options=storage_options(source_option),
            watch=printer.watch,
            nan="null" if nan is Nan.NULL else None,
            per=per,
        )
    documents = "" if done.documents is None else f" of {format_count(done.documents, 'document')}"
    left = f", {format_count(done.left_out, 'token')} left out" if done.left_out else ""
    printer.conclude(
        done,
        {"tokens": done.tokens, "documents": done.documents, "left_out": done.left_out},
        f": {format_count(done.tokens, 'token')}{documents}{left}",
    )


def _token(given: str | None) -> str | int | None:
    """Return a token: digits are its number. Raise UsageError for a number of thousands of digits."""
    try:
        return int(given) if given is not None and given.isascii() and given.isdecimal() else given
    except ValueError:
        hint = "give the token's text or number"
        raise UsageError("a token's number has too many digits", found=shown(given), hint=hint) from None


def _note(progress: Progress) -> str:
    found = cast("TokenizationProgress", progress)
    return f"{format_count(found.tokens, 'token')}, {found.speed:,.0f} tokens/s"
