"""Executors: threads or processes that work ahead of a consumer. They know nothing about data or PyTorch."""

from mdsx.base.work.contract import Chunks, Executor, Several, chunk_lengths
from mdsx.base.work.info import WorkerInfo, worker_info
from mdsx.base.work.items import iterate_ahead
from mdsx.base.work.memory import SharedNumbers
from mdsx.base.work.parcels import register_reducer
from mdsx.base.work.processes import Processes, context_of
from mdsx.base.work.relay import Relay
from mdsx.base.work.threads import Threads

__all__ = [
    "Chunks",
    "Executor",
    "Processes",
    "Relay",
    "Several",
    "SharedNumbers",
    "Threads",
    "WorkerInfo",
    "chunk_lengths",
    "context_of",
    "iterate_ahead",
    "register_reducer",
    "worker_info",
]
