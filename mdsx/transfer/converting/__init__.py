"""`convert` converts existing data to a dataset; `build` makes a dataset with a Python function."""

from __future__ import annotations

from mdsx.transfer.converting.building import build
from mdsx.transfer.converting.conversion import Conversion, convert, convert_source, open_output, open_source
from mdsx.transfer.converting.progress import ConversionProgress
from mdsx.transfer.converting.source import Block, Counted, Item, Lost, Request, Row, SampleSource, Unit

__all__ = [
    "Block",
    "Conversion",
    "ConversionProgress",
    "Counted",
    "Item",
    "Lost",
    "Request",
    "Row",
    "SampleSource",
    "Unit",
    "build",
    "convert",
    "convert_source",
    "open_output",
    "open_source",
]
