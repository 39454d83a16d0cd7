"""`mdsx merge`: make one dataset of parts."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.output import ConnectTimeout, Json, print_json

EXAMPLE = "mdsx merge s3://bucket/corpus"


def merge(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where part-00000/, part-00001/, ... are.")],
    parts: Annotated[
        int | None, typer.Option(min=1, help="How many parts there must be. Default: those found.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    connect_timeout: ConnectTimeout = None,
    as_json: Json = False,
) -> None:
    """Write one index for finished parts, in the order of their numbers. No shard is touched.

    If a part is missing, unfinished or has other columns, the error names it and nothing is written.
    """
    import mdsx
    from mdsx.shards import read_index
    from mdsx.storage import open_storage

    mdsx.merge(url, overwrite=overwrite, parts=parts, connect_timeout=connect_timeout)
    storage = open_storage(url)
    index = read_index(storage)
    if as_json:
        print_json({"url": storage.url, "samples": index.samples, "shards": len(index.counts)})
    else:
        print(f"merged into {storage.url}: {index.samples:,} samples in {len(index.counts):,} shards")
