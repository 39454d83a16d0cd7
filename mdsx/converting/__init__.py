"""Convert existing data to datasets, with `convert`; make datasets with a Python function, with `build`."""

from __future__ import annotations

from mdsx.converting.conversion import Conversion, ConversionProgress, ConvertOptions, convert
from mdsx.converting.inputs import build

__all__ = ["Conversion", "ConversionProgress", "ConvertOptions", "build", "convert"]
