"""`mdsx verify`: every checksum of a dataset; a line per damage."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from mdsx.cli.output import Bar, Json, complain, error_fields, one_line, print_json
from mdsx.sizes import format_size

EXAMPLE = "mdsx verify s3://bucket/corpus"
_LINES = 10  # told of one file; all are counted
_LISTED = 1000  # in JSON


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    threads: Annotated[int, typer.Option(min=1, max=256, help="Shards checked at once; each is held in memory.")] = 4,
    as_json: Json = False,
) -> None:
    """Check every byte of a dataset against every checksum: index, shards, rows. One line per damage, the first ones
    of each file.

    Exit status: 0 sound, 1 damage was found or the dataset could not be read.
    """
    import mdsx
    from mdsx.damage import Progress, unnamed
    from mdsx.storage import open_storage

    seen, files, listed = Progress(0, 0, 0, 0, 0), Counter[str](), list[dict[str, object]]()
    with Bar("verifying") as bar:

        def watch(progress: Progress) -> None:
            nonlocal seen
            seen = progress
            bar.expect(progress.of_size)
            bar.reach(progress.size, f"{progress.shards:,} of {progress.of_shards:,} shards")

        for damage in mdsx.verify(url, threads=threads, watch=watch):
            file = damage.file or ""
            files[file] += 1
            if len(listed) < _LISTED:
                listed.append(error_fields(damage))
            if not as_json and files[file] <= _LINES:
                print(f"damaged: {one_line(damage)}")
            elif not as_json and files[file] == _LINES + 1:
                print(f"damaged: {file}: and more, see --json")
    beside = unnamed(url)
    if as_json:
        print_json(
            {
                "url": open_storage(url).url,
                "sound": not files,
                "shards": seen.shards,
                "samples": seen.samples,
                "size": seen.size,
                "damaged_files": len(files),
                "damages_found": files.total(),
                "damages": listed,
                "unnamed": beside[:_LISTED],
            }
        )
    else:
        what = f"{seen.samples:,} samples in {seen.shards:,} shards, {format_size(seen.size)}"
        if beside:
            names = ", ".join(beside[:_LINES]) + (", ..." if len(beside) > _LINES else "")
            print(f"beside it: {_count(len(beside), 'file')} that the index does not name: {names}")
        if files:
            print(f"{_count(files.total(), 'damage')} found in {what}: in {_count(len(files), 'file')}")
            complain(f"`mdsx repair {url}` says what can be kept, and leaves out the rest when told to", kind="")
        else:
            print(f"sound: {what}")
    if files:
        raise typer.Exit(1)


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"
