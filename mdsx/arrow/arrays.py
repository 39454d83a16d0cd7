"""Lists of numbers, nested or not -> the items of arrays, and the shape of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.arrow.library import pa
from mdsx.arrow.plain import first_null, list_lengths, nulls, plain
from mdsx.arrow.types import is_list
from mdsx.format import MAX_SPAN, ColumnType, Refused, dimensions_encoder, to_items


@dataclass(frozen=True, slots=True)
class Arrays:
    """n arrays: their items back to back, in the storage dtype, and their shapes [n, dimensions]. Null has no items."""

    items: NDArray[Any]
    shapes: NDArray[np.int64]

    @property
    def edges(self) -> NDArray[np.int64]:
        """Return where in the items each array begins, and where the last one ends: [n + 1]."""
        return np.concatenate((np.zeros(1, np.int64), self.shapes.prod(axis=1).cumsum()))


def numbers(base: str, array: Any) -> NDArray[Any]:
    """Return the numbers of `array` that are not null as `base` items in their storage dtype. Raise Refused."""
    array = plain(array)
    is_ = pa.types
    if len(array) == array.null_count:
        return to_items(base, np.empty(0, np.uint8))
    if not (is_.is_boolean(array.type) or is_.is_integer(array.type) or is_.is_floating(array.type)):
        raise Refused(f"numbers that fit {base}", f"Arrow's {array.type}")
    null = nulls(array)
    try:
        return to_items(base, array.drop_null().to_numpy(zero_copy_only=False))
    except Refused as refused:
        if refused.at and null is not None:
            refused.at = (int(np.flatnonzero(~null)[refused.at[0]]),)
        raise


def arrays(kind: ColumnType, array: Any) -> Arrays:
    """Return the values of a plain array of lists as arrays of `kind`, which has dimensions.

    An empty list has the inner dimensions of `kind`, and 0 for stars. Raise Refused for another shape, for nulls inside
    of a list, and for numbers that do not fit.
    """
    shape = kind.shape or ()
    shapes = np.tile(np.array([size or 0 for size in shape], np.int64), (len(array), 1))
    if (null := nulls(array)) is not None:
        shapes[null] = 0
    owners, here = np.arange(len(array)), array  # owners: the value that each item of `here` is in
    for axis in range(len(shape)):
        if not is_list(here.type) and not pa.types.is_null(here.type):
            raise Refused(_shape_text(kind), f"Arrow's {array.type}")
        if axis:
            _check_no_null(here, owners, shapes[:, :axis])
        lengths = list_lengths(here) if is_list(here.type) else np.zeros(len(here), np.int64)
        firsts = np.flatnonzero(np.diff(owners, prepend=-1))
        given = firsts if null is None or axis else firsts[~null]
        shapes[owners[given], axis] = lengths[given]
        if (wrong := lengths != shapes[owners, axis]).any():
            place = int(wrong.argmax())
            found = f"lists of {shapes[owners[place], axis]} and of {lengths[place]} items"
            raise Refused("items of one shape", found, at=(int(owners[place]),))
        owners = np.repeat(owners, lengths)
        here = plain(here.flatten()) if is_list(here.type) else here[:0]
    _check_no_null(here, owners, shapes)
    if is_list(here.type) and len(here):
        raise Refused(_shape_text(kind), f"Arrow's {array.type}")
    _check_shapes(kind, shapes, np.flatnonzero(~null) if null is not None else np.arange(len(array)))
    try:
        return Arrays(numbers(kind.base, here[:0].cast(pa.null()) if is_list(here.type) else here), shapes)
    except Refused as refused:
        if refused.at:
            refused.at = _place(refused.at[0], owners, shapes)
        raise


def _check_shapes(kind: ColumnType, shapes: NDArray[np.int64], valid: NDArray[np.int64]) -> None:
    """Raise Refused for the first of the values `valid` whose shape does not fit."""
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


def _check_no_null(here: Any, owners: NDArray[np.int64], shapes: NDArray[np.int64]) -> None:
    if here.null_count:
        raise Refused("no null inside of an array", "None", at=_place(first_null(here), owners, shapes))


def _place(item: int, owners: NDArray[np.int64], shapes: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the value that an item is in, and its index there."""
    owner = int(owners[item])
    index = np.unravel_index(item - int(np.searchsorted(owners, owner)), shapes[owner])
    return (owner, *map(int, index))


def _shape_text(kind: ColumnType) -> str:
    return f"lists of shape {str(kind).removesuffix('?').removeprefix(kind.base)}"
