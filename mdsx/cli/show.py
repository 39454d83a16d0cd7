"""`mdsx info` and `mdsx cat`: describe a dataset, and print its samples."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mdsx.base.sizes import format_count, format_size
from mdsx.cli.command import command
from mdsx.cli.options import DatasetUrl, IndexOption, Json, SnapshotOption, StorageOption, storage_options
from mdsx.cli.output import print_json, print_table, say
from mdsx.errors import UsageError, shown

_METADATA_WIDTH = 1000  # characters shown of a value of the metadata
_VALUE_WIDTH = 100  # characters shown of a sample's value
_BATCH = 64  # samples read at once


@command("mdsx info s3://bucket/corpus")
def info(
    url: DatasetUrl,
    index: IndexOption = None,
    snapshot: SnapshotOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Show a dataset's format, what its checksums cover, samples, shards, sizes, compression, fingerprint, columns and
    metadata, the snapshots from before parts were appended, and the selections that `mdsx select` stored. Long metadata
    is shortened, except with --json."""
    from mdsx.format import ReadsExtents, ReadsParts, object_sizes
    from mdsx.shards import OURS, read_index, selection_heads, snapshots
    from mdsx.storage import open_beside, open_storage

    options = storage_options(storage_option)
    storage = open_storage(url, options)
    beside = storage if index is None else open_beside(url, index, options)
    found = read_index(beside, snapshot)
    kept = snapshots(beside) if found.format == OURS.name else []
    selections = selection_heads(beside, found.fingerprint)
    columns = {column.name: str(column.type) for column in found.schema.columns}
    size, raw_size = sum(found.sizes.tolist()), sum(found.raw_sizes.tolist())  # sizes in a damaged index exceed 64 bits
    in_parts = isinstance(found, ReadsParts)
    about = "about " if in_parts else ""
    shards = f"{len(found.counts):,}"
    if len(found.counts) and isinstance(found, ReadsParts | ReadsExtents):
        files = len(object_sizes(found, range(len(found.counts))))
        shards += f" in {format_count(files, 'file')}"
    if as_json:
        print_json(
            {
                "url": storage.url,
                "format": found.format,
                "checks": found.checks,
                "samples": found.samples,
                "shards": len(found.counts),
                "size": size,
                "raw_size": raw_size,
                "raw_size_is_exact": not in_parts,
                "compression": found.compression,
                "fingerprint": found.fingerprint,
                "columns": columns,
                "metadata": found.metadata,
                "snapshots": kept,
                "selections": [
                    {"name": each.name, "selected": each.selected, "where": each.where} for each in selections
                ],
            }
        )
        return
    print_table(
        [
            ("dataset", storage.url),
            ("format", found.format),
            ("checks", found.checks),
            ("samples", f"{found.samples:,}"),
            ("shards", shards),
            (
                "size",
                format_size(size) + (f", {about}{format_size(raw_size)} uncompressed" if found.compression else ""),
            ),
            ("compression", found.compression or "none"),
            ("fingerprint", found.fingerprint),
        ]
    )
    say("columns")
    print_table(columns.items(), indent="  ")
    if found.metadata:
        say("metadata")
        print_table(
            (
                (json.dumps(name, ensure_ascii=False)[1:-1], _metadata_line(value))
                for name, value in found.metadata.items()
            ),
            indent="  ",
        )
    if kept:
        say("snapshots")
        for fingerprint in kept:
            say(f"  {fingerprint}")
    if selections:
        say("selections")
        print_table(
            ((each.name, f"{each.selected:,} samples where {_shortened(each.where)}") for each in selections),
            indent="  ",
        )


def _metadata_line(value: object) -> str:
    """Return JSON on one line, shortened if it is long."""
    return _shortened(json.dumps(value, ensure_ascii=False))


def _shortened(text: str) -> str:
    return text if len(text) <= _METADATA_WIDTH else f"{text[: _METADATA_WIDTH - 3]}..."


@command("mdsx cat s3://bucket/corpus --start 1000 --count 3")
def cat(
    url: DatasetUrl,
    start: Annotated[int, typer.Option(min=0, help="The first sample to show.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="How many samples to show.")] = 10,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Show only this column; can be repeated.")
    ] = None,
    index: IndexOption = None,
    snapshot: SnapshotOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Print samples in the order in which they were written; long values are shortened.

    Values of another package's type are decoded by that package. If it is not installed, the stored bytes are shown.

    With --json, each line is one sample as an object, with complete values: bytes, images and other packages' types as
    base64, arrays as nested lists, and numbers that JSON lacks as "NaN", "Infinity" and "-Infinity". Keys of maps
    become text; a map with two keys that would become equal, such as 1 and "1", becomes a list of [key, value].
    """
    from mdsx import Dataset
    from mdsx.datasets import excerpt_of
    from mdsx.shards import stored_columns

    options = storage_options(storage_option)
    dataset = Dataset(url, columns=column or None, storage_options=options, index=index, snapshot=snapshot)
    dataset = dataset.select_columns(stored_columns(excerpt_of(dataset).schema, absent=not as_json))
    if start >= len(dataset) and start > 0:
        samples = f"{len(dataset):,} samples"
        raise UsageError(f"there is no sample {start:,}: the dataset has {samples}, numbered from 0", file=dataset.url)
    stop = min(start + count, len(dataset))
    for first in range(start, stop, _BATCH):
        for number, sample in enumerate(dataset[first : min(first + _BATCH, stop)], first):
            if as_json:
                print_json(sample)
            else:
                say(f"sample {number}")
                print_table(((name, as_line(value)) for name, value in sample.items()), indent="  ")


def as_line(value: Any) -> str:
    """Return a value on one line, shortened if it is long."""
    import numpy as np

    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, list) and any(isinstance(item, bytes) for item in value):
        line = f"[{', '.join(map(as_line, value[:16]))}{', ...' if len(value) > 16 else ''}]"
    elif isinstance(value, np.ndarray) and value.ndim:
        shape = ",".join(map(str, value.shape))
        items = " ".join(map(str, value.flat[:16]))
        line = f"{value.dtype}[{shape}] {items}{' ...' if value.size > 16 else ''}"
    else:
        line = (
            str(value.item()) if isinstance(value, np.generic | np.ndarray) else shown(value, limit=10 * _VALUE_WIDTH)
        )
    return line if len(line) <= _VALUE_WIDTH else line[: _VALUE_WIDTH - 3] + "..."
