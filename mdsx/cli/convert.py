"""`mdsx convert KIND`: make a dataset from existing data. All kinds share some options, and each may add its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from mdsx.cli.columns import parse_declared, parse_renames
from mdsx.cli.command import command, group
from mdsx.cli.conversions import ConversionPrinter, OnBadSample
from mdsx.cli.options import (
    Compression,
    EngineOption,
    Json,
    KeyUntil,
    Nan,
    Out,
    Per,
    ShardSize,
    SourceOption,
    Sources,
    StorageOption,
    storage_options,
)

_ALL_KINDS = """\
An invalid sample stops the conversion with an error that names the file, the place and the column, and no index is
written. With --on-error skip, the other samples are converted. After a kill, the same command continues where it
stopped. For a finished output, it only reports the skipped samples again. A large conversion is written in parts,
part-NNNNN/, which are merged at the end. The result is the same for any number of processes.

Exit status: 0 converted, 1 error, 2 wrong usage, 3 converted but something was skipped, 130 interrupted.
"""


converters = group(
    "convert",
    "Make a dataset from existing data.",
    example="mdsx convert tar 's3://bucket/laion-{00000..00999}.tar' s3://bucket/laion --num-workers 8",
)


def _convert(
    kind: str,
    own: dict[str, Any],
    /,
    sources: Sources,
    out: Out,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help="A column's type; others are inferred. With '?', it may be absent."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="NEW=OLD", help="Rename a column. For tars: NEW=EXTENSION[;EXTENSION...]."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave out a column. For tars: an extension or file name.")
    ] = None,
    on_error: Annotated[
        OnBadSample, typer.Option(help="At an invalid sample or file: stop with an error, or skip and report it.")
    ] = OnBadSample.RAISE,
    shard_size: ShardSize = "64MiB",
    compression: Compression = None,
    num_workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes convert. Default: 1, or all CPUs of a cluster.")
    ] = None,
    engine: EngineOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the dataset at OUT, which stays until the new one is complete.")
    ] = False,
    storage_option: StorageOption = None,
    source_option: SourceOption = None,
    as_json: Json = False,
) -> None:
    """Convert sources of a kind with the options that all kinds share, and its `own`."""
    from mdsx.transfer.converting import convert

    renames = parse_renames(rename or ())
    with ConversionPrinter("converting", as_json=as_json) as printer:
        conversion = convert(
            kind,
            sources,
            out,
            columns=parse_declared(column or (), renames, lower=kind == "tar"),
            rename=renames,
            drop=drop or (),
            on_error=on_error.value,
            shard_size=shard_size,
            compression=compression,
            num_workers=num_workers,
            engine=engine,
            overwrite=overwrite,
            storage_options=storage_options(storage_option),
            source_options=storage_options(source_option),
            watch=printer.watch,
            **own,
        )
    printer.conclude(conversion)


def _command(example: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    """Make a function the command for the kind that it is named after. The function returns the kind's own options.

    The command has the parameters of `_convert` and those of the function.
    """
    return lambda function: command(example, of=converters)(_with_shared_options(function))


def _with_shared_options(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    shared = [
        parameter
        for parameter in inspect.signature(_convert, eval_str=True).parameters.values()
        if parameter.kind is not parameter.POSITIONAL_ONLY
    ]
    names = [parameter.name for parameter in shared]
    own = inspect.signature(function, eval_str=True).parameters

    def run(**given: Any) -> None:
        options = function(**{name: given[name] for name in own})
        _convert(function.__name__, options, **{name: given[name] for name in names})

    parameters = [*shared[:3], *own.values(), *shared[3:]]
    run.__name__, run.__doc__ = function.__name__, f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_ALL_KINDS}"
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    signature = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in parameters])
    cast("Any", run).__signature__ = signature
    return run


@_command(
    "mdsx convert tar 's3://bucket/laion-{00000..00999}.tar' s3://bucket/laion "
    "--rename 'image=jpg;png;webp' --nan null --on-error skip --compression zstd --num-workers 8"
)
def tar(
    key_until: Annotated[
        KeyUntil, typer.Option(help="Where the key ends in a member's name; the rest is the column.")
    ] = KeyUntil.FIRST_DOT,
    nan: Annotated[Nan, typer.Option(help="How to read NaN and Infinity, which are not JSON.")] = Nan.ERROR,
) -> dict[str, Any]:
    """Convert WebDataset tars, in the order given, to one dataset.

    Adjacent members with the same name up to the first dot after the last slash (with --key-until last-dot: up to the
    last one) form a sample; the rest of the name, in lower case, is the column. Directories and hidden files are left
    out. Types are inferred from the extension and the first samples: int64 for cls, id and index (str if they are not
    numbers), str for txt and text, json for json, the array's type for npy, jpeg, png or webp for images, bytes for
    anything else. The key becomes the column __key__.

    --rename 'image=jpg;jpeg;png' makes one column of several extensions: of type bytes, unless all have the same type.
    --drop README leaves out files that belong to no sample. Python writes NaN and Infinity to JSON: --nan null reads
    them as null.

    A truncated or damaged tar, a missing member, a duplicate key, a member without a column, or a value that does not
    fit its column is an error that names tar, member and offset.
    """
    return {"key_until": key_until.value, "nan": nan.value}


@_command(
    "mdsx convert jsonl 's3://bucket/raw-{000..099}.jsonl.zst' s3://bucket/corpus --column id=uint64 "
    "--column 'lang=str?' --drop raw_html --on-error skip --num-workers 8"
)
def jsonl(
    nan: Annotated[Nan, typer.Option(help="How to read NaN and Infinity, which are not JSON.")] = Nan.ERROR,
) -> dict[str, Any]:
    """Convert files with a JSON object per line (.jsonl, .ndjson, .json), plain, gzip or zstd.

    The keys are the columns. Their types are inferred from the first lines: bool, int64, float64, str, lists of these,
    and json for anything else; with a question mark where a value is null or a key absent. A column declared as bytes
    or an image reads base64 text. Empty lines are left out.

    A line that is not a JSON object in UTF-8, a duplicate key, a key without a column, a missing key, or a value that
    does not fit its column is an error. It names file, line and column, and the option that would accept the value.
    Several processes can share a plain file; a compressed file is read by one process.
    """
    return {"nan": nan.value}


@_command(
    "mdsx convert tfrecord 'train-*.tfrecord' s3://bucket/imagenet --rename image=image/encoded "
    "--rename label=image/class/label --drop image/filename --num-workers 8"
)
def tfrecord() -> dict[str, Any]:
    """Convert TFRecord files of tf.train.Example messages to one dataset, without TensorFlow.

    Files are plain, gzip, zlib or zstd. Features become columns, in alphabetical order. Types are inferred from the
    first 1,000 samples: float32 and int64 for features with one number in each, float32[3] or int64[3] with three,
    float32[*] or int64[*] if their number varies; images by their magic bytes, str for text and bytes for other
    bytes, and lists such as bytes[*]. A feature that some of these samples lack gets a question mark.

    --column can also give numbers another shape (float32[*,4]), parse bytes (json, msgpack), or read them as the items
    of an array (uint8[28,28]), as tf.io.decode_raw does.

    A truncated file, a wrong checksum, a missing or unknown feature, or a value that does not fit its column is an
    error that names file, record, offset and feature. After a damaged length, the rest of the file cannot be read.
    SequenceExample is not supported. Needs google-crc32c: pip install 'mdsx[tfrecord]'.
    """
    return {}


@_command("mdsx convert megatron corpus_text_document s3://bucket/corpus --num-workers 8")
def megatron(
    per: Annotated[Per, typer.Option(help="What a sample is.")] = Per.DOCUMENT,
) -> dict[str, Any]:
    """Convert indexed datasets of Megatron-LM to one dataset.

    SRC is the prefix of PREFIX.idx and PREFIX.bin. A sample is a document, or with --per sequence one of the sequences
    that documents consist of. The column is tokens, of the file's dtype, such as uint16[*]; --column 'tokens=int32[*]'
    converts them. Sequences with modes (multimodal datasets) need --per sequence, and have a column mode.

    The index is checked before anything is written: sequences outside PREFIX.bin, and documents that do not cover all
    sequences, are errors. Needs pyarrow: pip install 'mdsx[parquet]'.
    """
    return {"per": per.value}


@_command("mdsx convert parquet s3://bucket/table s3://bucket/corpus --drop url --num-workers 8")
def parquet() -> dict[str, Any]:
    """Convert Parquet files, and all *.parquet files below folders, in the order of their names, to one dataset.

    Row groups of any size are read in batches. All files must have the same columns; docs/writing.md lists the types.
    The metadata keeps the Arrow schema, so that `mdsx export parquet` restores values and types. Parquet files can also
    be read in place: see `mdsx index parquet`.
    """
    return {}


@_command("mdsx convert mds s3://bucket/mds s3://bucket/corpus --num-workers 8")
def mds() -> dict[str, Any]:
    """Convert MDS datasets (MosaicML's Streaming), given by their folders, to one dataset.

    Types that only MDS has are converted: `pil` becomes png, `str_int` int64, `str_float` float64, `str_decimal` str,
    and an `ndarray` without a shape an array with as many variable dimensions as its first values have.
    Pickles are never loaded: leave such columns out with --drop. MDS datasets can also be read in place.
    """
    return {}


@_command("mdsx convert hf allenai/c4 s3://bucket/c4 --name en --split train --streaming --num-workers 8")
def hf(
    name: Annotated[str | None, typer.Option(help="The dataset's configuration.")] = None,
    split: Annotated[str | None, typer.Option(help="The split; required if there are several.")] = None,
    revision: Annotated[str | None, typer.Option(help="A branch, tag or commit of a dataset on the Hub.")] = None,
    streaming: Annotated[bool, typer.Option("--streaming", help="Read without downloading everything first.")] = False,
    embed: Annotated[
        bool, typer.Option("--embed", help="Read files that rows name by path or URL. Only if you trust the dataset.")
    ] = False,
    outside: Annotated[
        bool,
        typer.Option(
            "--outside", help="Read data files outside the dataset's folder, and URLs. Only if you trust the dataset."
        ),
    ] = False,
) -> dict[str, Any]:
    """Convert a Hugging Face dataset.

    SRC is a folder that save_to_disk wrote, another folder that load_dataset reads, or a name on the Hub.

    Images and audio stay encoded: a column of images is jpeg, png or webp if all of the first ones are, otherwise
    bytes.
    Class labels become int64; the metadata has their names (class_names). Numbers, text, arrays and lists of them
    become the types in docs/writing.md, and nested features json. The metadata keeps the Arrow schema with the
    features, for an export, and the split and the commit.

    Needs the package datasets: pip install 'mdsx[datasets]'. For a private dataset, give the token with --source-option
    token=..., unless the environment has it.
    """
    given = {"name": name, "split": split, "revision": revision, "streaming": streaming}
    return {**given, "embed": embed, "outside": outside}
