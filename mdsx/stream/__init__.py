"""Reads a dataset in order: a run's position, prefetch, batches of columns. Independent of PyTorch."""

from mdsx.stream.background import batches_ahead, lists_ahead
from mdsx.stream.batching import Batching, Place, Steps, Task, in_lists, run_sizes, warn_of_spread
from mdsx.stream.damaged import Failure, place_of
from mdsx.stream.group_source import GroupSource
from mdsx.stream.groups import GroupBatching, Plan, failed_in_planning
from mdsx.stream.layouts import Layout, MaxTokens, Pack, RankGroups
from mdsx.stream.machine import Pace
from mdsx.stream.meter import Meter
from mdsx.stream.packed import Packing, packed_samples
from mdsx.stream.prefetch import warn_of_small_cache
from mdsx.stream.reader import FIRST_READS, Batch, RankReader
from mdsx.stream.run import NOTHING, Iteration, Run
from mdsx.stream.sample_info import (
    INFO_FIELDS,
    NOTHING_ADDED,
    Info,
    SampleInfo,
    generator,
    info_columns,
    info_records,
    takes_generator,
)
from mdsx.stream.skipping import check_skipped, checked_share
from mdsx.stream.state import OrderIdentity, WorkerShare

__all__ = [
    "FIRST_READS",
    "INFO_FIELDS",
    "NOTHING",
    "NOTHING_ADDED",
    "Batch",
    "Batching",
    "Failure",
    "GroupBatching",
    "GroupSource",
    "Info",
    "Iteration",
    "Layout",
    "MaxTokens",
    "Meter",
    "OrderIdentity",
    "Pace",
    "Pack",
    "Packing",
    "Place",
    "Plan",
    "RankGroups",
    "RankReader",
    "Run",
    "SampleInfo",
    "Steps",
    "Task",
    "WorkerShare",
    "batches_ahead",
    "check_skipped",
    "checked_share",
    "failed_in_planning",
    "generator",
    "in_lists",
    "info_columns",
    "info_records",
    "lists_ahead",
    "packed_samples",
    "place_of",
    "run_sizes",
    "takes_generator",
    "warn_of_small_cache",
    "warn_of_spread",
]
