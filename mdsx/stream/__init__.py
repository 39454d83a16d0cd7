"""Reads a dataset in order: where a run stands, prefetch, batches of columns. Knows nothing of PyTorch."""

from mdsx.stream.background import Background
from mdsx.stream.need import warn_of_small_cache, warn_of_spread
from mdsx.stream.progress import Batching, Progress, Task
from mdsx.stream.reader import Batch, RankReader
from mdsx.stream.state import OrderIdentity, Phases

__all__ = [
    "Background",
    "Batch",
    "Batching",
    "OrderIdentity",
    "Phases",
    "Progress",
    "RankReader",
    "Task",
    "warn_of_small_cache",
    "warn_of_spread",
]
