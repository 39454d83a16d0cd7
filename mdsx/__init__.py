"""mdsx: training samples in fixed-offset shards, streamed from object storage in a specified order.

`__init__.pyi` lists the public names; each is imported on first use. `mdsx.torch` has StreamingDataset and
StreamingDataLoader, which need PyTorch. `mdsx.engines.ray` and `mdsx.engines.spark` are public too.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

__version__ = "1.0.0rc1"

_LIST = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _LIST, re.MULTILINE)}

__all__ = sorted(_HOMES.keys() - {"zip"})  # `from mdsx import *` must not shadow the builtin


def __getattr__(name: str) -> object:
    if name in ("engines", "torch"):
        return importlib.import_module(f"mdsx.{name}")
    if name not in _HOMES:
        place = ": it is in mdsx.torch" if name in ("StreamingDataLoader", "StreamingDataset") else ""
        raise AttributeError(f"module 'mdsx' has no attribute {name!r}{place}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
