"""Reads a dataset in order: a run's cursor, prefetch, batches of columns. Independent of PyTorch."""

from mdsx.stream.accounts import Consumed, Ledger
from mdsx.stream.batching import Batcher, Batching, Cut, Outlook, given_batching
from mdsx.stream.buckets import Buckets
from mdsx.stream.damaged import Failure, place_of, sound_columns
from mdsx.stream.extras import AddedLengths
from mdsx.stream.group_state import origin_of
from mdsx.stream.groups import failed_in_planning
from mdsx.stream.machine import Pace
from mdsx.stream.max_tokens import MaxTokens
from mdsx.stream.meter import Meter, check_skipped, checked_share
from mdsx.stream.pack import Pack
from mdsx.stream.packing import Packing, packed_samples
from mdsx.stream.pad import Pad
from mdsx.stream.phase_state import in_json, listed, phases_of, same_shares, weight_of
from mdsx.stream.plan import Phase, Plan, Tokens
from mdsx.stream.planning import Origin, Planner
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
)
from mdsx.stream.samples import SAMPLES, SampleSteps
from mdsx.stream.stages import Stages
from mdsx.stream.state import OrderIdentity, number_of, shuffle_of
from mdsx.stream.steps import Cursor, PlannedEpoch, RankGroups, Steps, Task, first_task, step_end
from mdsx.stream.worker_share import WorkerShare

__all__ = [
    "FIRST_READS",
    "INFO_FIELDS",
    "NOTHING",
    "NOTHING_ADDED",
    "SAMPLES",
    "AddedLengths",
    "Batch",
    "Batcher",
    "Batching",
    "Buckets",
    "Consumed",
    "Cursor",
    "Cut",
    "Failure",
    "Info",
    "Iteration",
    "Ledger",
    "MaxTokens",
    "Meter",
    "OrderIdentity",
    "Origin",
    "Outlook",
    "Pace",
    "Pack",
    "Packing",
    "Pad",
    "Phase",
    "Plan",
    "PlannedEpoch",
    "Planner",
    "RankGroups",
    "RankReader",
    "Run",
    "SampleInfo",
    "SampleSteps",
    "Stages",
    "Steps",
    "Task",
    "Tokens",
    "WorkerShare",
    "check_skipped",
    "checked_share",
    "failed_in_planning",
    "first_task",
    "generator",
    "given_batching",
    "in_json",
    "info_columns",
    "info_records",
    "listed",
    "number_of",
    "origin_of",
    "packed_samples",
    "phases_of",
    "place_of",
    "same_shares",
    "shuffle_of",
    "sound_columns",
    "step_end",
    "weight_of",
]
