"""Convert existing data to datasets: WebDataset tars, with `convert_tars`."""

from __future__ import annotations

from mdsx.convert.columns import parse_declared
from mdsx.convert.conversion import Conversion, ConversionProgress, convert_tars
from mdsx.convert.webdataset import MemberNames, parse_renames

__all__ = ["Conversion", "ConversionProgress", "MemberNames", "convert_tars", "parse_declared", "parse_renames"]
