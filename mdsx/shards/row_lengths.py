"""Read lengths from the rows of shards, or from whole shards if their format has no separate rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Share
from mdsx.errors import UsageError
from mdsx.format import (
    STORED_LENGTH,
    LengthIdentity,
    LengthRule,
    LengthTrailer,
    ProjectsColumns,
    ReadsLengths,
    Schema,
    StoredIndex,
    constant_length,
    length_rule,
    length_rules,
)
from mdsx.shards.length_file import ShardLengths, put_length_file
from mdsx.shards.shards import Shards
from mdsx.shards.side_objects import SideObjects
from mdsx.shards.stored import StoredShards
from mdsx.storage import Storage

_AT_ONCE = 64  # shards
_BYTES_AT_ONCE = 2**28


def column_of(schema: Schema, name: str, *, url: str, rule: LengthRule | None = None) -> tuple[int, LengthRule]:
    """Return a column's number and its rule for lengths: `rule`, if given. Raise UsageError for a column without
    lengths."""
    for number, column in enumerate(schema.columns):
        if column.name == name and rule is not None and rule in length_rules(column.type):
            return number, rule
        if column.name == name and rule is None and (own := length_rule(column.type)):
            return number, own
    if rule is not None:
        images = [column.name for column in schema.columns if rule in length_rules(column.type)]
        raise UsageError(
            f"only a column of encoded images has a {rule}",
            file=url,
            place=f"column {str(name)[:80]!r}",
            expected=", ".join(images) or "a column of type jpeg, png, webp or bytes; the dataset has none",
            hint='for sizes that are stored as numbers, give both columns: by=("height", "width")',
        )
    type = next((column.type for column in schema.columns if column.name == name), None)
    message = "there is no such column" if type is None else f"a column of type '{type}' has no lengths"
    good = ", ".join(column.name for column in schema.columns if length_rule(column.type))
    expected = good or "one-dimensional arrays, bytes, str, json or integers; the dataset has none"
    hint = "if you chose columns (columns=), choose this one too" if type is None else None
    raise UsageError(message, file=url, place=f"column {str(name)[:80]!r}", expected=expected, hint=hint)


def width_of(index: StoredIndex, column: int, numbers: Sequence[int]) -> int:
    """Return how many shards to read at once."""
    by_range = isinstance(index, ReadsLengths) and index.read_lengths(numbers[0], column, file="") is not None
    sizes = index.counts * index.schema.row_size if by_range else index.raw_sizes
    return max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(int(sizes[numbers].max()), 1)))


def shards_of_column(
    storage: Storage, index: StoredIndex, column: int, beside: Storage | None
) -> tuple[StoredShards, StoredIndex, int]:
    """Return the shards in `storage`, their index, and the column's number there. If the format stores columns
    separately, they have only this column. `beside`: the index's storage, if not `storage`."""
    projected, place = (index.project([column]), 0) if isinstance(index, ProjectsColumns) else (index, column)
    side_objects = SideObjects(storage if beside is None else beside, projected, None, mapped=False)
    return StoredShards(storage, projected, side_objects.index), projected, place


def read_lengths(shards: Shards | StoredShards, column: int, numbers: Sequence[int]) -> list[ShardLengths]:
    """Read the lengths of shards from their rows."""
    found = Share(REQUESTS).map(lambda shard: shards.lengths(shard, column).astype(STORED_LENGTH), numbers)
    return list(zip(numbers, found, strict=True))


def write_length_file(
    storage: Storage,
    index: StoredIndex,
    column: str,
    *,
    target: Storage,
    watch: Callable[[int, int], object] = lambda shards, samples: None,
    check: Callable[[], object] = lambda: None,
) -> LengthTrailer:
    """Write the file of lengths by `column` of the dataset in `storage` to `target`, next to its `index`. Return the
    trailer. Call `watch` with the numbers of shards and samples read, and `check` before the file is written. Raise
    UsageError for a column without lengths.
    """
    shards = range(len(index.counts))
    parts = stored_lengths(storage, index, column, shards, beside=target, watch=watch)
    _, rule = column_of(index.schema, column, url=storage.url)
    check()
    return put_length_file(target, LengthIdentity(index.fingerprint, column, rule), parts)


def stored_sum(storage: Storage, index: StoredIndex, column: str, numbers: Sequence[int]) -> int | None:
    """Return the sum of the lengths by `column` in the shards `numbers`, from their rows; None for a column without
    lengths."""
    if not any(each.name == column and length_rule(each.type) for each in index.schema.columns):
        return None
    found = 0
    for start in range(0, len(numbers), _AT_ONCE):
        parts = stored_lengths(storage, index, column, numbers[start : start + _AT_ONCE])
        found += sum(int(part.sum(dtype=np.int64)) for part in parts)
    return found


def stored_lengths(
    storage: Storage,
    index: StoredIndex,
    column: str,
    numbers: Sequence[int],
    *,
    beside: Storage | None = None,
    watch: Callable[[int, int], object] = lambda shards, samples: None,
) -> list[NDArray[np.uint32]]:
    """Return the lengths by `column` of each of the shards `numbers`, from their rows. `beside`: the index's storage,
    if not `storage`. `watch`: as above.

    Raise UsageError for a column without lengths.
    """
    number, _ = column_of(index.schema, column, url=storage.url)
    constant = constant_length(index.schema.columns[number].type)
    if constant is not None:
        return [np.full(size, constant, STORED_LENGTH) for size in index.counts[numbers].tolist()]
    shards, projected, place = shards_of_column(storage, index, number, beside)
    samples, parts = 0, list[NDArray[np.uint32]]()
    while len(parts) < len(numbers):
        waiting = numbers[len(parts) : len(parts) + _AT_ONCE]
        for _, lengths in read_lengths(shards, place, waiting[: width_of(projected, place, waiting)]):
            parts.append(lengths)
            samples += len(lengths)
        watch(len(parts), samples)
    return parts
