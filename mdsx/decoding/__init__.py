"""Encoded pictures and sound -> arrays. Only this package imports the codec libraries.

A decoder is a frozen value: it is pickled with a dataset, equals another one with the same settings, and holds no
handles. Its results depend only on the bytes and the seed.
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
