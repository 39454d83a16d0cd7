"""Encoded pictures and sound -> arrays. The codecs are libraries, which only this package imports.

A decoder is a value: it is frozen, pickled with a dataset, equal to another one with the same settings, and holds no
handle. What it returns depends on the bytes and the seed only.
"""

from mdsx.decoding.audio import Audio
from mdsx.decoding.headers import SizeOf, header_reader
from mdsx.decoding.image import Image
from mdsx.decoding.protocol import Decoder

__all__ = ["Audio", "Decoder", "Image", "SizeOf", "header_reader"]
