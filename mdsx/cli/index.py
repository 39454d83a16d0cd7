"""`mdsx index`: make existing files readable in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.base.progress import Progress
from mdsx.base.sizes import format_count, format_size
from mdsx.cli.columns import parse_declared, parse_renames
from mdsx.cli.command import command, group
from mdsx.cli.options import EngineOption, Json, KeyUntil, Per, StorageOption, storage_options
from mdsx.cli.output import LongCall, print_json, print_table, say

if TYPE_CHECKING:
    from mdsx.transfer.indexing import Indexed, IndexedTars, IndexedTokenFiles


indexers = group("index", "Make existing files readable in place.", example="mdsx index parquet s3://bucket/corpus")

_Column = Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE", help="Type of a column; others are inferred.")]
_Index = Annotated[
    str | None, typer.Option(metavar="URL", help="Where to write the index, if you cannot write next to the files.")
]
_ReplaceIndex = Annotated[bool, typer.Option("--replace-index", help="Replace an index of other files.")]
_Hash = Annotated[
    bool, typer.Option("--hash", help="Read all tokens once, and store hashes: otherwise damage goes unnoticed.")
]
_Processes = Annotated[
    int | None, typer.Option(min=1, help="How many processes index files. Default: 1, or all CPUs of a cluster.")
]


@command("mdsx index parquet s3://bucket/corpus", of=indexers)
def parquet(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="Parquet files, and folders with *.parquet below them; all in one storage."),
    ],
    column: _Column = None,
    index: _Index = None,
    engine: EngineOption = None,
    replace_index: _ReplaceIndex = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Index Parquet files, so that they stream, shuffle and resume in place: each row group is a shard.

    Reads the footers, not the data, and writes _mdsx-parquet.json to the folder, or to the common folder of several
    URLs. That folder is then the dataset's URL. Hidden files and files that begin with "_" are left out. All files must
    have the same columns. Run it again after you add or replace files.

    Warns about row groups that are too large to shuffle well (more than 256 MiB decoded), about columns that are left
    out, and about folders such as year=2024, whose values do not become columns.
    """
    from mdsx.transfer.indexing import index_parquet

    columns, options = parse_declared(column or ()), storage_options(storage_option)
    with LongCall("indexing", _rows, continues=False) as call:
        found = index_parquet(
            sources,
            columns=columns,
            index=index,
            engine=engine,
            replace_index=replace_index,
            storage_options=options,
            watch=call.watch,
        )
    if as_json:
        print_json({**_parquet_facts(found), "warnings": call.warnings})
        return
    files = format_count(found.files, "file")
    rows = f"{format_count(found.samples, 'row')} in {format_count(found.shards, 'row group')}"
    say(f"{rows} of {files}, {format_size(found.size)}; columns:")
    print_table(found.columns.items(), indent="  ")
    _say_place(found.url, index)


@command("mdsx index tar 's3://bucket/pictures/{0000..0099}.tar' --num-workers 8", of=indexers)
def tar(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="Tars: paths, globs, URLs, braces {0000..0099}, and folders of *.tar."),
    ],
    column: _Column = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="NEW=OLD[;OLD...]", help="Make one column of one or more extensions.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave out an extension or a file name.")
    ] = None,
    key_until: Annotated[
        KeyUntil, typer.Option(help="Where the key ends in a member's name; the rest is the column.")
    ] = KeyUntil.FIRST_DOT,
    index: _Index = None,
    from_index: Annotated[
        str | None,
        typer.Option("--from", metavar="INDEX", help="Make the index from Energon's .nv-meta or a wids JSON."),
    ] = None,
    num_workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes read tars. Default: 1, or all CPUs of a cluster.")
    ] = None,
    engine: EngineOption = None,
    replace_index: _ReplaceIndex = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Index WebDataset tars, so that they stream, shuffle and resume in place: each tar is a shard.

    Reads all tars once, as strictly as `mdsx convert tar`, and writes _mdsx-tars.json and _mdsx-tars/ to their common
    folder, which is then the dataset's URL. Columns, types, --rename, --drop and --key-until work as in `mdsx convert
    tar`. The tars are not changed. Compressed tars (gzip, zstd), links and sparse members cannot be read in place:
    convert them.

    After a kill, the same command continues. Run it again after you add or replace tars: it reads only those.

    --from uses an existing index, Energon's folder .nv-meta or a wids JSON, and reads only the tars' headers, numbers
    and arrays. An index made like this has no checksums.
    """
    from mdsx.transfer.indexing import index_tars

    renames = parse_renames(rename or ())
    with LongCall("indexing", _tars) as call:
        found = index_tars(
            sources,
            columns=parse_declared(column or (), renames, lower=True),
            rename=renames,
            drop=drop or (),
            key_until=key_until.value,
            index=index,
            from_index=from_index,
            num_workers=num_workers,
            engine=engine,
            replace_index=replace_index,
            storage_options=storage_options(storage_option),
            watch=call.watch,
        )
    if as_json:
        print_json({**_tar_facts(found), "warnings": call.warnings})
        return
    unchanged = found.tars - found.read
    tars = format_count(found.tars, "tar")
    say(f"{format_count(found.samples, 'sample')} in {tars}, {format_size(found.size)}; columns:")
    print_table(found.columns.items(), indent="  ")
    if unchanged:
        say(f"{unchanged:,} of the tars were indexed before, and have not changed")
    if not found.checksums:
        say("the index has no checksums, because the tars were not read completely")
    _say_place(found.url, index)


@command("mdsx index megatron s3://bucket/corpus", of=indexers)
def megatron(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="PREFIX.bin files, each with its PREFIX.idx, and folders with them."),
    ],
    per: Annotated[Per, typer.Option(help="What a sample is: a document, or each of its sequences.")] = Per.DOCUMENT,
    no_modes: Annotated[bool, typer.Option("--no-modes", help="Leave out the modes of sequences.")] = False,
    with_hash: _Hash = False,
    index: _Index = None,
    num_workers: _Processes = None,
    engine: EngineOption = None,
    replace_index: _ReplaceIndex = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Index Megatron-LM's token files, so that they stream, shuffle and pack in place: each document is a sample.

    Reads the .idx files, not the tokens, and writes _mdsx-tokens.json and _mdsx-tokens/ to the common folder, which is
    then the dataset's URL. Nothing is copied. Reading a file that was replaced after indexing is an error; flipped bits
    are found only with --hash. Run it again after you add or replace files.
    """
    from mdsx.transfer.indexing import index_megatron

    with LongCall("indexing", _documents, continues=False) as call:
        found = index_megatron(
            sources,
            per=per.value,
            modes=not no_modes,
            hash=with_hash,
            index=index,
            num_workers=num_workers,
            engine=engine,
            replace_index=replace_index,
            storage_options=storage_options(storage_option),
            watch=call.watch,
        )
    _report_tokens(found, index, as_json, call.warnings)


@command("mdsx index datatrove s3://bucket/tokenized", of=indexers)
def datatrove(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help=".ds files, each with its .ds.index, and folders with them."),
    ],
    with_hash: _Hash = False,
    index: _Index = None,
    num_workers: _Processes = None,
    engine: EngineOption = None,
    replace_index: _ReplaceIndex = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Index datatrove's token files, so that they stream, shuffle and pack in place: each document is a sample.

    Reads the .ds.index files, not the tokens. If there are .ds.loss files, samples also have a column loss, with a byte
    per token. The rest is as in `mdsx index megatron`.
    """
    from mdsx.transfer.indexing import index_datatrove

    with LongCall("indexing", _documents, continues=False) as call:
        found = index_datatrove(
            sources,
            hash=with_hash,
            index=index,
            num_workers=num_workers,
            engine=engine,
            replace_index=replace_index,
            storage_options=storage_options(storage_option),
            watch=call.watch,
        )
    _report_tokens(found, index, as_json, call.warnings)


@command("mdsx index tokens s3://bucket/dolma --dtype uint16 --csv", of=indexers)
def tokens(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC", help="Files of tokens, and folders with .npy and .bin files."),
    ],
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The tokens' type, for files without a header: uint16, ...")
    ] = None,
    separator: Annotated[
        int | None, typer.Option(metavar="ID", help="Documents end with this token. All tokens are read.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="The .csv.gz next to each file lists its documents.")] = False,
    every: Annotated[int | None, typer.Option(metavar="L", min=1, help="Each sample has L tokens.")] = None,
    with_hash: _Hash = False,
    index: _Index = None,
    num_workers: _Processes = None,
    engine: EngineOption = None,
    replace_index: _ReplaceIndex = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Index raw arrays of tokens, such as those of dolma, OLMo and llm.c, so that they can be read in place.

    Headers of NumPy and of llm.c are recognised; files without one need --dtype. Give exactly one of --separator, --csv
    and --every: it determines where samples end. The rest is as in `mdsx index megatron`.
    """
    from mdsx.transfer.indexing import index_tokens

    with LongCall("indexing", _documents, continues=False) as call:
        found = index_tokens(
            sources,
            dtype=dtype,
            separator=separator,
            csv=csv,
            every=every,
            hash=with_hash,
            index=index,
            num_workers=num_workers,
            engine=engine,
            replace_index=replace_index,
            storage_options=storage_options(storage_option),
            watch=call.watch,
        )
    _report_tokens(found, index, as_json, call.warnings)


def _report_tokens(found: IndexedTokenFiles, index: str | None, as_json: bool, warnings: Sequence[str]) -> None:
    if as_json:
        print_json({**_token_facts(found), "warnings": list(warnings)})
        return
    files = format_count(found.files, "file")
    documents = f"{format_count(found.samples, 'sample')} of {found.tokens:,} tokens"
    say(f"{documents} in {format_count(found.shards, 'shard')} of {files}, {format_size(found.size)}; columns:")
    print_table(found.columns.items(), indent="  ")
    if not found.hashed:
        say("the index has no hashes of the tokens (--hash): flipped bytes go unnoticed")
    _say_place(found.url, index)


def _say_place(url: str, index: str | None) -> None:
    say(f"the dataset is {url}" + (f", with index={index!r}" if index else ""))


def _documents(progress: Progress) -> str:
    return f"{progress.samples:,} samples in {progress.shards:,} shards"


def _rows(progress: Progress) -> str:
    return f"{progress.samples:,} rows in {progress.shards:,} row groups"


def _tars(progress: Progress) -> str:
    return f"{progress.samples:,} samples, {progress.shards:,} tars"


def _tar_facts(found: IndexedTars) -> dict[str, object]:
    return {
        "url": found.url,
        "tars": found.tars,
        "samples": found.samples,
        "size": found.size,
        "columns": dict(found.columns),
        "read": found.read,
        "checksums": found.checksums,
    }


def _token_facts(found: IndexedTokenFiles) -> dict[str, object]:
    return {
        "url": found.url,
        "files": found.files,
        "samples": found.samples,
        "tokens": found.tokens,
        "shards": found.shards,
        "size": found.size,
        "columns": dict(found.columns),
        "left_out": found.left_out,
        "hashed": found.hashed,
    }


def _parquet_facts(found: Indexed) -> dict[str, object]:
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
