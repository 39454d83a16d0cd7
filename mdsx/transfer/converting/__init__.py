"""Convert existing data to datasets, with `convert`; make datasets with a Python function, with `build`."""

from __future__ import annotations

from mdsx.transfer.converting.conversion import Conversion, ConversionProgress, convert
from mdsx.transfer.converting.inputs import build

__all__ = ["Conversion", "ConversionProgress", "build", "convert"]
