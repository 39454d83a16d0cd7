"""Values that a caller passes to the writer: view them as arrays, describe them in messages, or refuse them.

A masked item is never stored. A completely masked value is null, like None. A partly masked one is refused.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.format.families.floats import LACKING


class Refused(Exception):
    """A column cannot store a value. The encoder, which knows column and sample, turns this into a SampleError."""

    def __init__(self, expected: str, found: object, *, at: tuple[int, ...] = (), hint: str | None = None) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found
        self.at = at  # index of the item in an array
        self.hint = hint


def all_masked(value: np.ma.MaskedArray[Any, Any]) -> bool:
    """Return whether the value is null: it has items, and all of them are masked."""
    return value.size > 0 and bool(_mask(value).all())


def has_masked(value: object) -> bool:
    """Return whether `value` is a masked array with a masked item."""
    return isinstance(value, np.ma.MaskedArray) and bool(_mask(value).any())


def as_array(value: object) -> tuple[NDArray[Any], str] | None:
    """Return an array, a tensor or a typed buffer as an array, with the name of its dtype.

    Items of a type that NumPy lacks are returned as their bits. Return None for any other value, such as a list.
    """
    if isinstance(value, np.ndarray | np.generic):
        if isinstance(value, np.ma.MaskedArray) and has_masked(value):
            at = first_true(_mask(value))
            raise Refused("no masked item", f"{value.dtype} with a mask", at=at, hint=_UNMASK)
        items = np.asarray(value)
    elif hasattr(value, "detach") and hasattr(value, "cpu"):
        return _from_tensor(value)
    elif hasattr(value, "__array__") or isinstance(value, array.array | memoryview):
        try:
            items = np.asarray(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise Refused("an array that NumPy can view", f"{type(value).__name__}: {error}") from None
    else:
        return None
    name = items.dtype.name
    return (items.view(LACKING[name].item) if name in LACKING else items), name


def describe(value: object) -> str:
    """Describe `value` in a few words."""
    if value is None:
        return "None"
    with suppress(Exception):  # any object may have a dtype
        return f"{value.dtype} of shape {list(value.shape)}"  # type: ignore[attr-defined]
    text = repr(value[:40]) if isinstance(value, str | bytes) else repr(value) if isinstance(value, float) else ""
    text = str(short(value)) if isinstance(value, int) else text
    return f"{type(value).__name__} {text[:40]}{'...' if len(text) > 40 else ''}".rstrip()


def each(values: Sequence[object], convert: Callable[[object], Any]) -> list[Any]:
    """Return the converted values. If one raises Refused, prepend its index to `at`."""
    done = []
    for place, value in enumerate(values):
        try:
            done.append(convert(value))
        except Refused as refused:
            refused.at = (place, *refused.at)
            raise
    return done


_UNMASK = "use .filled(...); a completely masked value is null in a column declared with '?'"


def _mask(value: np.ma.MaskedArray[Any, Any]) -> NDArray[np.bool_]:
    """Return the mask of `value`, with its shape."""
    mask = np.ma.getmaskarray(value)
    if mask.dtype.names is not None:
        raise Refused("no structured array", f"{value.dtype}")
    return mask


def _from_tensor(tensor: Any) -> tuple[NDArray[Any], str]:
    try:
        tensor = tensor.detach().cpu()
        if bits := LACKING.get(name := str(tensor.dtype).removeprefix("torch.")):
            torch = sys.modules["torch"]  # already imported, because the value is a tensor
            return np.asarray(tensor.view(getattr(torch, f"int{8 * bits.item.itemsize}"))).view(bits.item), name
        items = np.asarray(tensor)
        return items, items.dtype.name
    except (TypeError, ValueError, RuntimeError) as error:  # on the meta device, sparse, quantised, nested, ...
        problem = str(error).partition("\n")[0]
        hint = "pass a dense tensor of plain numbers, such as from .to_dense() or .dequantize()"
        raise Refused("a tensor that NumPy can view", f"{tensor.dtype}: {problem}", hint=hint) from None


def first_true(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the index of the first item that is true."""
    return tuple(int(place) for place in np.unravel_index(int(bad.argmax()), bad.shape))


def short(value: int) -> int | str:
    """Return an integer for a message, or its size as text if it has too many digits."""
    return value if value.bit_length() < 256 else f"an integer of {value.bit_length()} bits"
