"""`mdsx append`: add a part to a finished dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.command import command
from mdsx.cli.options import DatasetUrl, Json, StorageOption, storage_options
from mdsx.cli.output import print_json, say


@command("mdsx append s3://bucket/corpus part-00007")
def append(
    url: DatasetUrl,
    part: Annotated[
        str,
        typer.Argument(metavar="PART", help="The part's folder below URL, part-NNNNN: itself a finished dataset."),
    ],
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Append a finished part to a finished dataset. No shard is copied or changed.

    Existing samples keep their numbers, and the part's samples follow. The old index stays as a snapshot,
    index-<fingerprint>.json: a run with an earlier checkpoint continues with it, and a new run reads everything.

    Appending a part twice changes nothing. After a kill, run the same command again. If the part is unfinished or has
    other columns, or another part is being appended, the command fails and the dataset stays as it was.
    """
    import mdsx

    done = mdsx.append(url, part, storage_options=storage_options(storage_option))
    if as_json:
        print_json(
            {
                "url": done.url,
                "part": done.part,
                "first": done.first,
                "samples": done.samples,
                "fingerprint": done.fingerprint,
                "snapshot": done.snapshot,
                "already": done.snapshot is None,
            }
        )
        return
    place = f"samples {done.first:,} to {done.first + done.samples - 1:,} of {done.url}"
    if done.snapshot is None:
        say(f"{done.part} had been appended before, as {place}; nothing to do")
    else:
        say(f"appended {done.part}: {place}; the previous state is the snapshot {done.snapshot}")
