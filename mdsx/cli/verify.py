"""`mdsx verify`: every checksum of a dataset; a line per damage."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.output import Bar, Json, error_fields, one_line, print_json
from mdsx.sizes import format_size

EXAMPLE = "mdsx verify s3://bucket/corpus"


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    threads: Annotated[int, typer.Option(min=1, max=256, help="Shards checked at once; each is held in memory.")] = 4,
    as_json: Json = False,
) -> None:
    """Check every byte of a dataset against every checksum: index, shards, rows. One line per damage.

    Exit status: 0 sound, 1 damage was found or the dataset could not be read.
    """
    from mdsx.storage import open_storage
    from mdsx.verify import Verified, verify

    seen, damages = Verified(0, 0, 0, 0, 0), []
    with Bar("verifying") as bar:

        def watch(verified: Verified) -> None:
            nonlocal seen
            seen = verified
            bar.expect(verified.of_size)
            bar.reach(verified.size, f"{verified.shards:,} of {verified.of_shards:,} shards")

        for damage in verify(url, threads=threads, watch=watch):
            damages.append(error_fields(damage))
            if not as_json:
                print(f"damaged: {one_line(damage)}")
    if as_json:
        print_json(
            {
                "url": open_storage(url).url,
                "sound": not damages,
                "shards": seen.shards,
                "samples": seen.samples,
                "size": seen.size,
                "damages": damages,
            }
        )
    else:
        what = f"{seen.samples:,} samples in {seen.shards:,} shards, {format_size(seen.size)}"
        found = "1 damage" if len(damages) == 1 else f"{len(damages):,} damages"
        print(f"{found} found in {what}" if damages else f"sound: {what}")
    if damages:
        raise typer.Exit(1)
