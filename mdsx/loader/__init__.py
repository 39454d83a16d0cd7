"""Loaders without PyTorch: a rank's batches, as NumPy arrays, and what `mdsx.torch` makes its own of."""

from mdsx.loader.assembly import (
    Collate,
    Kit,
    OnError,
    PackedBatch,
    Short,
    Transform,
    presented,
    presented_info,
    skipped_lines,
    transformed,
)
from mdsx.loader.batches import BatchLoader, rows_of
from mdsx.loader.collation import Uneven, join_samples
from mdsx.loader.course import course_of, view_of
from mdsx.loader.loader import Loader, LoaderOptions
from mdsx.loader.making import BatchMaker
from mdsx.loader.rank_data import RankData, batches_together, rank_data
from mdsx.loader.ranks import RankOptions, Ranks
from mdsx.loader.stats import Stats

__all__ = [
    "BatchLoader",
    "BatchMaker",
    "Collate",
    "Kit",
    "Loader",
    "LoaderOptions",
    "OnError",
    "PackedBatch",
    "RankData",
    "RankOptions",
    "Ranks",
    "Short",
    "Stats",
    "Transform",
    "Uneven",
    "batches_together",
    "course_of",
    "join_samples",
    "presented",
    "presented_info",
    "rank_data",
    "rows_of",
    "skipped_lines",
    "transformed",
    "view_of",
]
