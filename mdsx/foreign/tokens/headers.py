"""The headers of token files: Megatron's `.idx`, and those of raw arrays, which may have none.

    PREFIX.idx = "MMIDIDX\\0\\0", u64 version 1, u8 code of the dtype, u64 S, u64 D,
                 int32 sizes[S], int64 pointers[S], int64 documents[D], maybe int8 modes[S]         (little-endian)

Sequence i is sizes[i] tokens from byte pointers[i] of PREFIX.bin on. Document d is the sequences documents[d] to
documents[d + 1].
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xxhash

from mdsx.errors import CorruptError, UnsupportedError, UsageError, shown
from mdsx.foreign.npy import NPY_MAGIC, read_npy_header
from mdsx.format import Range

if TYPE_CHECKING:
    from typing_extensions import Buffer

ENDS = 2**16
"""How many bytes at the start and at the end of a file identify it."""


def ends_of(size: int) -> list[Range]:
    """Return the ranges of the first and last bytes of a file of this size."""
    return [(0, min(size, ENDS)), (max(size - ENDS, 0), size)]


def ends_hash(parts: Sequence[Buffer]) -> str:
    """Return the XXH3-128 of the first and the last bytes of a file, in hexadecimal."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    found: str = hasher.hexdigest()
    return found


# --- Megatron

_HEAD, _MAGIC = struct.Struct("<9sQBQQ"), b"MMIDIDX\0\0"
_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}


@dataclass(frozen=True, slots=True)
class MegatronIndex:
    """The header of an `.idx`. `bounds`: the number of entries of `documents`, one more than there are documents."""

    dtype: str
    sequences: int
    bounds: int
    modes: bool

    HEAD: ClassVar[int] = _HEAD.size

    @classmethod
    def parse(cls, head: bytes, *, size: int, file: str) -> MegatronIndex:
        """Parse the first bytes of an `.idx` of `size` bytes, `HEAD` of them. Raise CorruptError or
        UnsupportedError."""
        if not head.startswith(_MAGIC):
            hint = "preprocess datasets from before Megatron-LM's mmap format again"
            raise CorruptError("is not the index of a Megatron dataset", file=file, found=shown(head[:9]), hint=hint)
        if len(head) < _HEAD.size:
            raise CorruptError("index is truncated in its header", file=file, found=f"{len(head)} bytes")
        _, version, code, sequences, bounds = _HEAD.unpack(head[: _HEAD.size])
        if version != 1:
            raise UnsupportedError("index has an unknown version", file=file, found=version, expected=1)
        if code not in _DTYPES:
            raise UnsupportedError("index has an unknown dtype", file=file, found=code, expected="1 to 8")
        plain = _HEAD.size + 12 * sequences + 8 * bounds
        if size not in (plain, plain + sequences):
            raise CorruptError(
                f"index of {sequences:,} sequences and {bounds:,} bounds of documents has another size",
                file=file,
                found=f"{size:,} bytes",
                expected=f"{plain:,}, or {plain + sequences:,} with modes",
            )
        return cls(_DTYPES[code], sequences, bounds, size > plain)

    def sizes(self, start: int, stop: int) -> Range:
        """Return the range of the sizes of sequences [start, stop), `<i4`."""
        return _HEAD.size + 4 * start, _HEAD.size + 4 * stop

    def pointers(self, start: int, stop: int) -> Range:
        """Return the range of their pointers, `<i8`."""
        first = _HEAD.size + 4 * self.sequences
        return first + 8 * start, first + 8 * stop

    def documents(self, start: int, stop: int) -> Range:
        """Return the range of the bounds [start, stop) of documents, `<i8`."""
        first = _HEAD.size + 12 * self.sequences
        return first + 8 * start, first + 8 * stop

    def mode(self, start: int, stop: int) -> Range:
        """Return the range of the modes of sequences [start, stop), `i1`."""
        first = _HEAD.size + 12 * self.sequences + 8 * self.bounds
        return first + start, first + stop


# --- datatrove


def item_size_of(size: int, tokens: int, *, file: str) -> int:
    """Return the bytes of a token in a `.ds` of `size` bytes with `tokens` tokens. Raise CorruptError."""
    item = size // tokens if tokens else 2
    if item * tokens != size or item not in (1, 2, 4, 8):
        found, expected = f"{size:,} bytes for {tokens:,} tokens", "1, 2, 4 or 8 bytes for each"
        raise CorruptError("the file does not match its .ds.index", file=file, found=found, expected=expected)
    return item


# --- raw arrays

LLM_C = 1024
"""Bytes of llm.c's header: 256 int32, which begin with a magic number, a version and the number of tokens."""
_LLM_C = {(20240520, 1): "uint16", (20240801, 7): "uint32"}


@dataclass(frozen=True, slots=True)
class RawHeader:
    """The tokens of a raw file: the kind of its header, their type, the first byte, and their number."""

    kind: str
    dtype: str
    start: int
    tokens: int


def read_raw_header(head: bytes, *, size: int, dtype: str | None, file: str) -> RawHeader:
    """Parse the first bytes of a file of `size` bytes. `dtype`: the caller's; None for the header's. Raise UsageError,
    CorruptError or UnsupportedError."""
    if head.startswith(NPY_MAGIC):
        found = _of_numpy(head, file)
    elif (known := _LLM_C.get(tuple(np.frombuffer(head[:8], "<i4").tolist()) if len(head) >= 8 else ())) is not None:
        found = RawHeader("llm.c", known, LLM_C, int(np.frombuffer(head, "<i4", 1, 8)[0]) if len(head) >= 12 else -1)
    elif dtype is None:
        message, hint = "the file has no header with the type of its tokens", "give it: --dtype uint16 (dtype=)"
        raise UsageError(message, file=file, hint=hint)
    else:
        tokens, rest = divmod(size, np.dtype(dtype).itemsize)
        if rest:
            expected = f"a multiple of {np.dtype(dtype).itemsize} bytes, for tokens of type {dtype}"
            message = "the file is not an array of such tokens"
            raise CorruptError(message, file=file, found=f"{size:,} bytes", expected=expected)
        return RawHeader("none", dtype, 0, tokens)
    if dtype not in (None, found.dtype):
        message = "the file's header has another type of tokens"
        raise UsageError(message, file=file, found=found.dtype, expected=dtype, hint="leave out --dtype (dtype=)")
    expected_size = found.start + found.tokens * np.dtype(found.dtype).itemsize
    if size != expected_size or found.tokens < 0:
        message = f"the file's size differs from its header ({found.kind})"
        raise CorruptError(message, file=file, found=f"{size:,} bytes", expected=f"{expected_size:,}")
    return found


def _of_numpy(head: bytes, file: str) -> RawHeader:
    try:
        header = read_npy_header(head)
    except ValueError as error:
        raise CorruptError(f"the NumPy header is damaged: {error}", file=file) from None
    shape, fortran, dtype = header.shape, header.fortran, header.dtype
    little = dtype.newbyteorder("<")
    if dtype.kind not in "iuf" or dtype.itemsize > 8 or dtype != little or (fortran and len(shape) > 1):
        expected, found = "numbers, little-endian and in C order", f"{dtype}{' in Fortran order' * fortran}"
        raise UnsupportedError("the array cannot be read in place", file=file, found=found, expected=expected)
    return RawHeader("NumPy", little.newbyteorder("=").name, header.start, math.prod(shape))
