"""The column type `acme.Frame`: an instant of a recording, with points in millimetres."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("<dI")  # seconds, number of points


@dataclass(frozen=True, eq=False)
class Frame:
    seconds: float
    points: NDArray[np.int16]  # [n, 3]


def encode(value: object) -> bytes:
    """Return a frame's bytes. Whatever this raises becomes a SampleError that names the column."""
    if not isinstance(value, Frame) or value.points.dtype != np.int16 or value.points.shape[1:] != (3,):
        raise TypeError("a Frame has points of int16 [n, 3]")
    return _HEAD.pack(value.seconds, len(value.points)) + value.points.astype("<i2").tobytes()


def decode(data: bytes) -> Frame:
    """Return the frame. Whatever this raises becomes a CorruptError that names the sample."""
    seconds, count = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + 6 * count:
        raise ValueError(f"{len(data)} bytes are no frame of {count} points")
    return Frame(seconds, np.frombuffer(data, "<i2", offset=_HEAD.size).reshape(count, 3))
