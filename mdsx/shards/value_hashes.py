"""64-bit hashes of a column's values, by which a dataset is split. format-spec.md specifies them.

Equal values have equal hashes, whatever the width of their type. Numbers are not hashed here, because the caller hashes
the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.format import Column

_NAN = np.uint64(0x7FF8 << 48)


def value_hashes(column: Column, values: Any) -> NDArray[np.uint64]:
    """Return 64 bits for each of a column's values, given in NumPy's form. None counts as 0, or as an empty value."""
    if isinstance(values, np.ndarray):
        bits = _bits(values)
        return bits if bits.ndim == 1 else _of_arrays(list(bits))
    if not column.type.scalar:
        return _hashed([value.encode() if isinstance(value, str) else value or b"" for value in values])
    if column.type.shape is None:
        first = next((value for value in values if value is not None), 0)
        return _bits(np.array([0 if value is None else value for value in values], np.asarray(first).dtype))
    return _of_arrays([_bits(np.asarray(() if value is None else value)) for value in values])


def nulls_of(values: Any) -> NDArray[np.bool_]:
    """Return which of a column's values are None, as bools."""
    if isinstance(values, np.ndarray):
        return np.zeros(len(values), np.bool_)
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def check_splits(column: Column, file: str) -> None:
    """Raise UsageError unless the column's values have hashes."""
    kind = column.type
    if kind.is_list or kind.kind in (None, "document"):
        raise UsageError(
            "a dataset can be split only by a column of numbers, arrays, str or bytes: equal values of other types may "
            "be stored in different ways",
            file=file,
            place=f"column {column.name!r}",
            found=str(kind),
            hint="use filter(), which can choose by any column",
        )


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return integers modulo 2^64, and floats as binary64, with one zero and one NaN."""
    if values.dtype.kind != "f":
        wide = values if values.dtype.kind == "u" else values.astype(np.int64)
        return wide.astype(np.uint64)
    with np.errstate(invalid="ignore"):  # a signaling NaN
        wide = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    return np.where(np.isnan(wide), _NAN, wide.view(np.uint64))


def _of_arrays(items: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return _hashed([each.astype("<u8", copy=False).tobytes() for each in items])


def _hashed(values: Iterable[Any]) -> NDArray[np.uint64]:
    """Return XXH3-64 of each of the values."""
    digests = b"".join(map(xxhash.xxh3_64_digest, values))
    return np.frombuffer(digests, ">u8").astype(np.uint64)
