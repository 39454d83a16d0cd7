"""Convert lists of numbers, nested or not, to the items and shapes of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.plain import edges_of, first_null, list_lengths, nulls, numpy_items, plain
from mdsx.foreign.arrow.types import is_list
from mdsx.format import JSON, MAX_SPAN, ColumnType, Number, Refused, dimensions_encoder, to_items

NULLS_INSIDE = f"declare the column as {JSON.name}, which allows null inside lists"


@dataclass(frozen=True, slots=True)
class Arrays:
    """n arrays: their items one after the other, in the storage dtype, and their shapes [n, dimensions]. Null has no
    items."""

    items: NDArray[Any]
    shapes: NDArray[np.int64]

    @property
    def edges(self) -> NDArray[np.int64]:
        """Return where each array begins in the items, and where the last one ends: [n + 1]."""
        return edges_of(self.shapes.prod(axis=1))


def numbers(base: Number, array: Any) -> NDArray[Any]:
    """Return the numbers of `array` that are not null as `base` items in their storage dtype. Raise Refused."""
    array = plain(array)
    is_ = pa.types
    if len(array) == array.null_count:
        return to_items(base, np.empty(0, np.uint8))
    if not (is_.is_boolean(array.type) or is_.is_integer(array.type) or is_.is_floating(array.type)):
        raise Refused(f"numbers that fit {base.name}", f"Arrow's {array.type}")
    null = nulls(array)
    try:
        return to_items(base, numpy_items(array.drop_null() if array.null_count else array))
    except Refused as refused:
        if refused.at and null is not None:
            refused.at = (int(np.flatnonzero(~null)[refused.at[0]]),)
        raise


def arrays(kind: ColumnType, array: Any) -> Arrays:
    """Return the values of a plain array of lists as arrays of `kind`, which has dimensions.

    An empty list has the inner dimensions of `kind`, and 0 for stars. Raise Refused for other shapes, for nulls inside
    lists, and for numbers that do not fit.
    """
    shape = kind.shape or ()
    shapes = np.tile(np.array([size or 0 for size in shape], np.int64), (len(array), 1))
    null, here = nulls(array), array  # here: the lists at one depth, then the items
    if null is not None:
        shapes[null] = 0
    for axis in range(len(shape)):
        outer = shapes[:, :axis]
        if axis:
            _check_no_null(here, outer)
        if pa.types.is_fixed_size_list(here.type):
            there = outer.prod(axis=1) > 0
            shapes[there if null is None else there & ~null, axis] = here.type.list_size
        elif is_list(here.type):
            _set_lengths(shapes, axis, list_lengths(here))
        elif len(here) > here.null_count:
            raise Refused(_shape_text(kind), f"Arrow's {array.type}")
        here = plain(here.flatten()) if is_list(here.type) else here[:0]
    _check_no_null(here, shapes)
    if is_list(here.type):
        if len(here):
            raise Refused(_shape_text(kind), f"Arrow's {array.type}")
        here = pa.nulls(0)
    _check_shapes(kind, shapes, np.arange(len(array)) if null is None else np.flatnonzero(~null))
    try:
        return Arrays(numbers(kind.number, here), shapes)
    except Refused as refused:
        if refused.at:
            refused.at = _place(refused.at[0], shapes)
        raise


def _set_lengths(shapes: NDArray[np.int64], axis: int, lengths: NDArray[np.int64]) -> None:
    """Set the size of dimension `axis` from the lengths of the lists there. Within a value, they must be equal."""
    if not axis:
        shapes[:, 0] = lengths
        return
    counts = shapes[:, :axis].prod(axis=1)
    there = counts > 0
    shapes[there, axis] = lengths[(np.cumsum(counts) - counts)[there]]
    expected = np.repeat(shapes[:, axis], counts)
    if (wrong := lengths != expected).any():
        item = int(wrong.argmax())
        found = f"lists of {expected[item]} and of {lengths[item]} items"
        raise Refused("items of one shape", found, at=_place(item, shapes[:, :axis])[:1])


def _check_shapes(kind: ColumnType, shapes: NDArray[np.int64], valid: NDArray[np.int64]) -> None:
    """Raise Refused for the first of the values `valid` whose shape does not fit `kind`."""
    wanted = np.array([-1 if size is None else size for size in kind.shape or ()])
    wrong = ((shapes != wanted) & (wanted >= 0)).any(axis=1)
    wrong |= np.maximum(shapes, 1).prod(axis=1) * kind.item_dtype.itemsize >= MAX_SPAN
    encode = dimensions_encoder(kind)
    for place in valid[wrong[valid]][:1].tolist():
        try:
            encode(tuple(shapes[place].tolist()))
        except Refused as refused:
            refused.at = (place,)
            raise


def _check_no_null(here: Any, shapes: NDArray[np.int64]) -> None:
    if here.null_count:
        place = _place(first_null(here), shapes)
        raise Refused("no null inside an array", "None", at=place, hint=NULLS_INSIDE)


def _place(item: int, shapes: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the value that an item is in, and its index there."""
    counts = shapes.prod(axis=1)
    stops = counts.cumsum()
    value = int(np.searchsorted(stops, item, side="right"))
    index = np.unravel_index(item - int(stops[value] - counts[value]), shapes[value])
    return (value, *map(int, index))


def _shape_text(kind: ColumnType) -> str:
    return f"lists of shape {str(kind).removesuffix('?').removeprefix(kind.base)}"
