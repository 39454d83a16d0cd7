"""mdsx: training samples in fixed-offset shards, streamed from object storage in an order that is a spec.

The public names, except those of `mdsx.torch` (StreamingDataset, StreamingDataLoader), which need PyTorch, and those of
`mdsx.engines.ray` and `mdsx.engines.spark`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from mdsx.errors import (
    ChangedError,
    CorruptError,
    ForbiddenError,
    FormatError,
    MdsxError,
    MissingError,
    SampleError,
    SkippedError,
    StateError,
    TransportError,
    TruncatedError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from mdsx.arrow import arrow_columns
    from mdsx.converting import Conversion, ConvertOptions, build, convert
    from mdsx.damage import Repair, ShardRepair, Verification, repair, verify
    from mdsx.dataset import Dataset
    from mdsx.engines import Cleaned, Leftover, clean
    from mdsx.exporting import Export, ExportOptions, export
    from mdsx.indexing import Indexed, IndexedTars, index_parquet, index_tars
    from mdsx.loader import Loader, LoaderOptions, RankOptions, Stats
    from mdsx.mixture import Component, Mixture
    from mdsx.order import Groups, GroupSequence, Order, Shuffle
    from mdsx.progress import Progress
    from mdsx.storage.cache import Cache
    from mdsx.stream import MaxTokens, Pack
    from mdsx.writer import Appended, Writer, WrittenLengths, append, merge, write_lengths
    from mdsx.zipped import zip as zip

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "Cache",
    "ChangedError",
    "Cleaned",
    "Component",
    "Conversion",
    "ConvertOptions",
    "CorruptError",
    "Dataset",
    "Export",
    "ExportOptions",
    "ForbiddenError",
    "FormatError",
    "GroupSequence",
    "Groups",
    "Indexed",
    "IndexedTars",
    "Leftover",
    "Loader",
    "LoaderOptions",
    "MaxTokens",
    "MdsxError",
    "MissingError",
    "Mixture",
    "Order",
    "Pack",
    "Progress",
    "RankOptions",
    "Repair",
    "SampleError",
    "ShardRepair",
    "Shuffle",
    "SkippedError",
    "StateError",
    "Stats",
    "TransportError",
    "TruncatedError",
    "UnsupportedError",
    "UsageError",
    "Verification",
    "Writer",
    "WrittenLengths",
    "append",
    "arrow_columns",
    "build",
    "clean",
    "convert",
    "export",
    "index_parquet",
    "index_tars",
    "merge",
    "repair",
    "verify",
    "write_lengths",
]  # and `zip`, which `from mdsx import *` must not put in the place of Python's

_HOMES = {
    "Appended": "mdsx.writer",
    "Cache": "mdsx.storage.cache",
    "Cleaned": "mdsx.engines",
    "Component": "mdsx.mixture",
    "Conversion": "mdsx.converting",
    "ConvertOptions": "mdsx.converting",
    "Dataset": "mdsx.dataset",
    "Export": "mdsx.exporting",
    "ExportOptions": "mdsx.exporting",
    "GroupSequence": "mdsx.order",
    "Groups": "mdsx.order",
    "Indexed": "mdsx.indexing",
    "IndexedTars": "mdsx.indexing",
    "Leftover": "mdsx.engines",
    "Loader": "mdsx.loader",
    "LoaderOptions": "mdsx.loader",
    "MaxTokens": "mdsx.stream",
    "Mixture": "mdsx.mixture",
    "Order": "mdsx.order",
    "Pack": "mdsx.stream",
    "Progress": "mdsx.progress",
    "RankOptions": "mdsx.loader",
    "Repair": "mdsx.damage",
    "ShardRepair": "mdsx.damage",
    "Shuffle": "mdsx.order",
    "Stats": "mdsx.loader",
    "Verification": "mdsx.damage",
    "Writer": "mdsx.writer",
    "WrittenLengths": "mdsx.writer",
    "append": "mdsx.writer",
    "arrow_columns": "mdsx.arrow",
    "build": "mdsx.converting",
    "clean": "mdsx.engines",
    "convert": "mdsx.converting",
    "export": "mdsx.exporting",
    "index_parquet": "mdsx.indexing",
    "index_tars": "mdsx.indexing",
    "merge": "mdsx.writer",
    "repair": "mdsx.damage",
    "verify": "mdsx.damage",
    "write_lengths": "mdsx.writer",
    "zip": "mdsx.zipped",
}


def __getattr__(name: str) -> object:  # heavy parts are imported when they are used
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
