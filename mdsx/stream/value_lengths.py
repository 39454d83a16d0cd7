"""Check that packed values have the lengths by which their samples were grouped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UsageError
from mdsx.stream.rows import Layout


class Counted(Protocol):
    """Values of a packed column."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Return how many items each value has."""
        ...


def check_lengths(
    sources: Mapping[str, Counted],
    lengths: NDArray[np.int64],
    layout: Layout,
    place_of: Callable[[int], str],
    transformed: bool,
) -> None:
    """Raise an error if a value's length differs from the one by which its sample was grouped, in `lengths`.

    In a truncated sample, a value may have any length from the capacity on, but all packed columns must agree.
    """
    if all(np.array_equal(source.counts, lengths) for source in sources.values()):
        return
    length_column = layout.length_columns[0] if layout.length_columns else None
    most = (layout.capacity or 0) - (layout.extras.begin is not None)
    truncated = (lengths > most) & (layout.oversize == "truncate")
    known = sources.get(length_column or "") or next(iter(sources.values()))
    for name, source in sources.items():
        expected = lengths
        wrong = np.where(truncated, source.counts < most, source.counts != lengths)
        if not wrong.any():
            wrong, expected = source.counts != known.counts, known.counts
        if wrong.any():
            first = int(wrong.argmax())
            place = f"{place_of(first)}, column {name!r}"
            found, length = int(source.counts[first]), int(expected[first])
            if name == length_column and not transformed:
                message = "the value's length differs from the dataset's stored lengths"
                raise CorruptError(message, place=place, found=found, expected=length)
            given = "the given lengths" if length_column is None else repr(length_column)
            alike = [other for other in sources if int(sources[other].counts[first]) == length]
            if alike and length_column not in sources:
                given += f" and column {alike[0]!r}"
            raise UsageError(
                "a packed column has a value whose length differs from the sample's",
                place=place,
                found=found,
                expected=f"{length}, by {given}",
                hint="transform must keep lengths; if it changes them, give length= an integer column with the new "
                "length"
                if transformed
                else "choose other columns by columns=",
            )


def check_own_lengths(
    sources: Mapping[str, Counted],
    sizes: NDArray[np.int64],
    layout: Layout,
    place_of: Callable[[int], str],
    transformed: bool,
) -> dict[str, NDArray[np.int64]]:
    """Return how many items of each value are in a batch, for columns with their own lengths.

    `sizes`: the lengths by which samples were grouped, each that of the longest value. Raise an error if a value is
    longer than that, or than the layout's capacity.
    """
    capacity, found = layout.capacity, dict[str, NDArray[np.int64]]()
    cut = layout.oversize != "error"
    for name, source in sources.items():
        counts = source.counts
        limits = sizes if layout.grouped else np.full(len(counts), 2**62 if capacity is None else capacity)
        wrong = counts > limits
        if cut:
            wrong &= limits != capacity
        if wrong.any():
            first = int(wrong.argmax())
            message, hint = "a value is longer than the capacity", 'give more capacity, or oversize="truncate"'
            if layout.grouped:
                message = "a packed column has a value that is longer than its sample"
                hint = f"name the column in length=, such as length={[*layout.length_columns, name]}"
                if transformed:
                    hint = "transform must keep lengths"
            raise UsageError(
                message,
                place=f"{place_of(first)}, column {name!r}",
                found=int(counts[first]),
                expected=f"at most {int(limits[first])}",
                hint=hint,
            )
        found[name] = counts if capacity is None else np.minimum(counts, capacity)
    lengths = [found[name] for name in layout.length_columns if name in found]
    if lengths and len(lengths) == len(layout.length_columns):
        wrong = np.maximum.reduce(lengths) != sizes
        if wrong.any():
            first = int(wrong.argmax())
            kind = UsageError if transformed else CorruptError
            raise kind(
                "the length of the sample's longest value differs from the dataset's stored lengths",
                place=f"{place_of(first)}, columns {', '.join(layout.length_columns)}",
                found=int(max(counts[first] for counts in lengths)),
                expected=int(sizes[first]),
            )
    return found
