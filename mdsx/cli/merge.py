"""`mdsx merge`: make one dataset from parts."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mdsx.base.sizes import format_count
from mdsx.cli.command import command
from mdsx.cli.options import Json, StorageOption, storage_options
from mdsx.cli.output import print_json, say
from mdsx.errors import UsageError, shown


@command("mdsx merge s3://bucket/corpus")
def merge(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where part-00000/, part-00001/, ... are.")],
    parts: Annotated[
        int | None, typer.Option(min=1, help="How many parts to expect. Default: all that are found.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The dataset's metadata, an object. Default: the parts', if they agree."),
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
        counts = f"{format_count(index.samples, 'sample')} in {format_count(len(index.counts), 'shard')}"
        say(f"merged into {storage.url}: {counts}")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # nested too deeply
        value = None
    if not isinstance(value, dict):
        raise UsageError(
            "--metadata must be a JSON object", found=shown(text), hint="""write --metadata '{"key": 1}'"""
        )
    return value
