"""Read-only mappings of files that hold no descriptor.

CPython's `mmap` keeps a duplicate of the descriptor that it maps, so thousands of shards would exceed `ulimit -n`. So a
private mapping of no file is made first, and the file is mapped over it: the object frees the pages, and has no
descriptor to keep. The pages keep the open file itself, with a flock if it has one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_MAP_FIXED = 0x10  # of Linux, macOS and the BSDs; Python's mmap does not name it
_FAILED = ctypes.c_void_p(-1).value

_alive: set[int] = set()  # a number for each mapping; adding and removing need no lock


def mapped() -> int:
    """How many mappings of this process are alive."""
    return len(_alive)


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """The first `size` bytes of an open file, which may be closed afterwards. Raises OSError; ValueError for size 0."""
    if size < 1:
        raise ValueError("an empty file cannot be mapped")
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    if _mmap()(address, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0) == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _alive.add(id(memory))
    weakref.finalize(memory, _alive.discard, id(memory)).atexit = False
    return memory


@cache
def _mmap() -> Callable[..., Any]:
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    function.argtypes = [pointer, size, number, number, number, ctypes.c_int64]
    return function
