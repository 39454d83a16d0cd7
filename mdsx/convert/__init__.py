"""Converters: what people have already -> mdsx datasets. Today: WebDataset tars, by `convert_tars`."""

from __future__ import annotations

from mdsx.convert.names import MemberNames
from mdsx.convert.plan import Plan
from mdsx.convert.tar import Conversion, convert_tars
from mdsx.convert.watcher import Watcher

__all__ = ["Conversion", "MemberNames", "Plan", "Watcher", "convert_tars"]
