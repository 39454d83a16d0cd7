"""Loaders without PyTorch: a rank's batches as NumPy arrays, and the base that `mdsx.torch` builds on."""

from mdsx.loader.ahead import PREFETCH, Ahead, Workforce, batches_ready
from mdsx.loader.assembly import ArrayBackend, Collate, OnError, Transform, transformed
from mdsx.loader.batches import BatchLoader
from mdsx.loader.change import Changed, change, changed
from mdsx.loader.collation import Uneven, join_samples
from mdsx.loader.loader import Loader
from mdsx.loader.making import BatchMaker
from mdsx.loader.planned_run import PlannedRun
from mdsx.loader.ranks import Mesh, Ranks
from mdsx.loader.reading import Reading, batches_together
from mdsx.loader.spec import RunSpec, checked_batching, course_of, first_batching, opened
from mdsx.loader.stats import Stats

__all__ = [
    "PREFETCH",
    "Ahead",
    "ArrayBackend",
    "BatchLoader",
    "BatchMaker",
    "Changed",
    "Collate",
    "Loader",
    "Mesh",
    "OnError",
    "PlannedRun",
    "Ranks",
    "Reading",
    "RunSpec",
    "Stats",
    "Transform",
    "Uneven",
    "Workforce",
    "batches_ready",
    "batches_together",
    "change",
    "changed",
    "checked_batching",
    "course_of",
    "first_batching",
    "join_samples",
    "opened",
    "transformed",
]
