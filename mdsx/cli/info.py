"""`mdsx info`: what a dataset holds, from its index alone."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.output import Json, print_json, print_table
from mdsx.sizes import format_size

EXAMPLE = "mdsx info s3://bucket/corpus"


def info(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    as_json: Json = False,
) -> None:
    """Show columns, samples, shards, sizes, compression and fingerprint of a dataset."""
    from mdsx.shards import read_index
    from mdsx.storage import open_storage

    storage = open_storage(url)
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
