"""The headers of NumPy files."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

NPY_MAGIC = npy_format.MAGIC_PREFIX
_DAMAGE = (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError, TokenError)
"""What NumPy, and Python's parser, which reads the header as a literal, raise for a damaged header."""
_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The header of a NumPy file: the array's type and shape, and where its items begin."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    start: int


def read_npy_header(data: bytes) -> NpyHeader:
    """Parse the header of a NumPy file whose first bytes are `data`. Raise ValueError."""
    stream = BytesIO(data)
    try:
        version = npy_format.read_magic(stream)
        if version not in _READERS:
            raise ValueError(f"version {version[0]}.{version[1]} is unknown")
        shape, fortran, dtype = _READERS[version](stream)
        if min(shape, default=0) < 0:
            raise ValueError("a dimension is negative")
    except _DAMAGE as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0][:200]) from None
    return NpyHeader(shape, fortran, dtype, stream.tell())
