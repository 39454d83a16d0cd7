"""Write the heights and widths of a dataset's images, for batches of one shape."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from mdsx.base.progress import Progress
from mdsx.format import SIDES, LengthIdentity
from mdsx.shards import image_column, put_length_file, stored_sides
from mdsx.storage import StorageOptions, file_of
from mdsx.writer.opening import check_unchanged, open_dataset


@dataclass(frozen=True, slots=True)
class WrittenSizes:
    """The result of `write_sizes`.

    Attributes:
        files: The files of the heights and of the widths.
        column: The column of the images.
        samples: The number of samples.
        missing: The number of samples without a size: null, or not a readable image.
    """

    files: tuple[str, str]
    column: str
    samples: int
    missing: int


def write_sizes(
    url: str | os.PathLike[str],
    column: str | None = None,
    *,
    index: str | os.PathLike[str] | None = None,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> WrittenSizes:
    """Write the height and width of each encoded image of a finished dataset, for `mdsx.Buckets(by=column)`.

        mdsx.write_sizes("s3://bucket/pictures", "image")

    All shards are read once. Pillow reads the images' headers and decodes no pixels. Sizes are those of the image as
    displayed: an EXIF orientation that turns it by 90 degrees swaps height and width. The files
    `_lengths/<column>=height.u32` and `_lengths/<column>=width.u32` are written next to the index, and replace earlier
    ones. No other file changes. `mdsx.append` extends them.

    Args:
        url: A dataset of any format.
        column: A column of encoded images, of type jpeg, png, webp or bytes. None: the only jpeg, png or webp column.
        index: The folder of the dataset's index, if it is not `url`. The files are written there.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` while shards are read. Its sizes are bytes of shards.

    Raises:
        UsageError: There is no such column, Pillow is not installed, or the storage cannot be written.
        MissingError: The dataset does not exist or is unfinished.
        CorruptError: A shard is damaged.
        ChangedError: The dataset changed meanwhile, such as by an append.
    """
    storage, target, found, show = open_dataset(url, index, storage_options, watch)
    number = image_column(found, column, url=storage.url)
    name, shards = found.schema.columns[number].name, range(len(found.counts))
    sides = stored_sides(storage, found, number, shards, beside=target, watch=show)
    check_unchanged(target, found)
    identities = [LengthIdentity(found.fingerprint, name, side) for side in SIDES]
    for place, identity in enumerate(identities):
        put_length_file(target, identity, [each[place] for each in sides])
    missing = sum(int((heights == 0).sum()) for heights, _ in sides)
    height, width = (file_of(target, identity.key) for identity in identities)
    return WrittenSizes((height, width), name, sum(len(heights) for heights, _ in sides), missing)
