"""`mdsx info`: describe a dataset, from its index alone."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mdsx.cli.output import ConnectTimeout, Json, print_json, print_table
from mdsx.sizes import format_size

EXAMPLE = "mdsx info s3://bucket/corpus"
_WIDTH = 1000  # characters shown of a value of the metadata


def info(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    connect_timeout: ConnectTimeout = None,
    as_json: Json = False,
) -> None:
    """Show columns, samples, shards, sizes, compression, fingerprint and metadata of a dataset. Long metadata is
    shortened, except with --json."""
    from mdsx.shards import read_index
    from mdsx.storage import open_storage

    storage = open_storage(url, connect_timeout=connect_timeout)
    index = read_index(storage)
    columns = {column.name: str(column.type) for column in index.schema.columns}
    size, raw_size = sum(index.sizes.tolist()), sum(index.raw_sizes.tolist())  # damaged ones exceed 64 bits
    if as_json:
        print_json(
            {
                "url": storage.url,
                "samples": index.samples,
                "shards": len(index.counts),
                "size": size,
                "raw_size": raw_size,
                "compression": index.compression,
                "fingerprint": index.fingerprint,
                "columns": columns,
                "metadata": index.metadata,
            }
        )
        return
    print_table(
        [
            ("dataset", storage.url),
            ("samples", f"{index.samples:,}"),
            ("shards", f"{len(index.counts):,}"),
            ("size", format_size(size) + (f", {format_size(raw_size)} uncompressed" if index.compression else "")),
            ("compression", index.compression or "none"),
            ("fingerprint", index.fingerprint),
        ]
    )
    print("columns")
    print_table(columns.items(), indent="  ")
    if index.metadata:
        print("metadata")
        print_table(
            ((json.dumps(name, ensure_ascii=False)[1:-1], _as_line(value)) for name, value in index.metadata.items()),
            indent="  ",
        )


def _as_line(value: object) -> str:
    """Return JSON on one line, shortened if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
