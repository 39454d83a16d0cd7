"""Bytes of a NumPy file (`.npy`) -> an array; strict, and without ever unpickling anything."""

from __future__ import annotations

import io
import math
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from mdsx.errors import shown

MAGIC = npy_format.MAGIC_PREFIX
_DAMAGE = (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError, TokenError)
"""What NumPy and Python's parser, which reads the header as a literal, raise for one that is none."""
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


def parse_npy(data: bytes) -> NDArray[Any]:
    """The array in `data`, in native byte order; a view of `data` where it can be. Raises ValueError."""
    stream = io.BytesIO(data)
    try:
        version = npy_format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"version {version[0]}.{version[1]} is not known")
        shape, fortran, dtype = _HEADERS[version](stream)
    except _DAMAGE as error:
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"not a NumPy file: {problem[:200]}") from None
    if dtype.hasobject:
        raise ValueError("a NumPy file of pickled objects, which are never loaded")
    start = stream.tell()
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - start
    if expected != found:
        raise ValueError(f"a NumPy file of {expected} bytes of data has {found}")
    array = np.frombuffer(data, dtype, offset=start) if found else np.empty(0, dtype)
    try:
        array = array.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError):
        raise ValueError(f"a NumPy file of an impossible shape: {shown(shape)}") from None
    return array.astype(dtype.newbyteorder("="), copy=False)
