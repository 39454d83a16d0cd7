"""Encoded pictures and sound -> arrays. The codecs are libraries, which only this package imports.

A decoder is a value: it is frozen, pickled with a dataset, equal to another one with the same settings, and holds no
handle. What it returns depends on the bytes and the seed only.
"""

from mdsx.decoding.audio import Audio
from mdsx.decoding.deferred import Deferred, check_on_cpu, corrupt, deferred, on_gpu
from mdsx.decoding.headers import SizeOf, header_reader
from mdsx.decoding.image import Image
from mdsx.decoding.jpeg_header import LEFT_TO_RIGHT, ON_ITS_SIDE, UPSIDE_DOWN
from mdsx.decoding.protocol import Decoder

__all__ = [
    "LEFT_TO_RIGHT",
    "ON_ITS_SIDE",
    "UPSIDE_DOWN",
    "Audio",
    "Decoder",
    "Deferred",
    "Image",
    "SizeOf",
    "check_on_cpu",
    "corrupt",
    "deferred",
    "header_reader",
    "on_gpu",
]
