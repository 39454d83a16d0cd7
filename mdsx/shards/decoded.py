"""Decode the values of a column: to an array [n, ...] if the results have one size, else to a list of arrays.

If a GPU decodes, the list has a `Deferred` for each value that the GPU will decode, and arrays for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.decoding import Decoder, Deferred, Image, corrupt, deferred, on_gpu
from mdsx.errors import FormatError, UsageError, shown
from mdsx.format import ColumnType, parse_type


def type_given(decoder: Decoder, stored: ColumnType, name: str) -> ColumnType:
    """Return the type of a decoder's results for a column of type `stored`. Raise UsageError."""
    place = f"decode, column {name!r}"
    try:
        text = decoder.gives(str(replace(stored, nullable=False)))
    except UsageError as error:
        error.add_note(f"mdsx: in {place}")
        raise
    try:
        found = parse_type(text) if isinstance(text, str) else None
    except FormatError as error:
        raise UsageError(str(error), place=place) from None
    if found is None or not found.scalar or found.shape is None or found.nullable or not found.number.native:
        expected = 'the type of arrays of numbers, such as "uint8[224,224,3]" or "float32[*]"'
        raise UsageError("gives() of a decoder must return a type", place=place, found=shown(text), expected=expected)
    return replace(found, nullable=stored.nullable)


def decoded(
    decoder: Decoder,
    kind: ColumnType,
    values: Sequence[Any],
    name: str,
    place_of: Callable[[int], str],
    seeds: NDArray[np.uint64] | None,
) -> NDArray[Any] | list[Any]:
    """Return the decoded values, of type `kind`, with None for null. `seeds`: the samples' seeds; None: all 0.

    Raise CorruptError that names the first value that cannot be decoded, or UsageError if the decoder returns another
    type than `gives` says.
    """
    found: NDArray[Any] | list[Any] = [None] * len(values)
    later = decoder if on_gpu(decoder) else None
    joined = kind.one_size and (later is None or not values)
    if joined:
        found = np.empty(len(values), kind.field_dtype)
    drawn = [0] * len(values) if seeds is None else seeds.tolist()
    for number, (value, seed) in enumerate(zip(values, drawn, strict=True)):
        if value is None:
            continue
        if later is not None:
            left = deferred(later, value, seed, f"{place_of(number)}, column {name!r}")
            if left is not None:
                found[number] = left
                continue
        row = found[number] if joined else None
        try:
            array = decoder.decode(value, seed, row) if isinstance(decoder, Image) else decoder.decode(value, seed)
        except MemoryError:
            raise
        except Exception as error:
            raise corrupt(error, f"{place_of(number)}, column {name!r}") from error
        if not _is_of(array, kind):
            given = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else shown(array)
            place = f"{place_of(number)}, column {name!r}"
            message = "the decoder returned another type than its gives() says"
            raise UsageError(message, place=place, found=given, expected=str(kind))
        if array is not row:
            found[number] = array if joined else np.require(array, requirements=("C", "W"))
    if kind.one_size and not joined and not any(isinstance(each, Deferred) for each in found):
        return np.stack(list(found))
    return found


def _is_of(array: object, kind: ColumnType) -> bool:
    return (
        isinstance(array, np.ndarray)
        and array.dtype == kind.item_dtype
        and array.ndim == len(kind.shape or ())
        and all(size in (None, found) for size, found in zip(kind.shape or (), array.shape, strict=True))
    )
