"""`mdsx verify`: check every checksum of a dataset, and print a line per damage."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Annotated

import typer

from mdsx.cli.output import Bar, ConnectTimeout, Json, complain, error_fields, one_line, print_json
from mdsx.sizes import format_size

EXAMPLE = "mdsx verify s3://bucket/corpus"
_LINES = 10  # printed for a file; all are counted
_LISTED = 1000  # in JSON


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    threads: Annotated[int, typer.Option(min=1, max=256, help="Shards checked at once; each is held in memory.")] = 4,
    connect_timeout: ConnectTimeout = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a dataset against every checksum: index, shards, rows. Print a line per damage, for the first
    ones of each file.

    Exit status: 0 sound, 1 damage was found or the dataset could not be read.
    """
    import mdsx
    from mdsx.damage import unnamed

    files = Counter[str]()
    with Bar("verifying") as bar:

        def watch(progress: mdsx.Progress) -> None:
            bar.expect(progress.of_size)
            bar.reach(progress.size, f"{progress.shards:,} of {progress.of_shards:,} shards")
            for damage in progress.problems:
                file = damage.file or ""
                files[file] += 1
                if not as_json and files[file] <= _LINES:
                    print(f"damaged: {one_line(damage)}")
                elif not as_json and files[file] == _LINES + 1:
                    print(f"damaged: {file}: and more, see --json")

        found = mdsx.verify(url, threads=threads, connect_timeout=connect_timeout, watch=watch)
    beside = unnamed(url)
    if as_json:
        print_json(
            {
                "url": found.url,
                "sound": found.ok,
                "shards": found.shards,
                "samples": found.samples,
                "size": found.size,
                "damaged_files": len(files),
                "damages_found": len(found),
                "damages": [error_fields(damage) for damage in islice(found, _LISTED)],
                "unnamed": beside[:_LISTED],
            }
        )
    else:
        what = f"{found.samples:,} samples in {found.shards:,} shards, {format_size(found.size)}"
        if beside:
            names = ", ".join(beside[:_LINES]) + (", ..." if len(beside) > _LINES else "")
            print(f"next to it: {_count(len(beside), 'file')} that the index does not name: {names}")
        if not found.ok:
            print(f"{_count(len(found), 'damage')} found in {what}: in {_count(len(files), 'file')}")
            complain(f"`mdsx repair {url}` shows what can be kept, and leaves out the rest if asked to", kind="")
        else:
            print(f"sound: {what}")
    if not found.ok:
        raise typer.Exit(1)


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"
