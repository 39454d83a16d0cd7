"""This process: its threads, limits, children and counters, ownership after a fork, and its rank."""

from mdsx.base.process.children import Owner, at_fork, holding_interrupts
from mdsx.base.process.counters import Counter, Counters, count, in_flight, work_for
from mdsx.base.process.launcher import find_local_ranks, find_ranks, find_ranks_per_node, is_first
from mdsx.base.process.limits import exhausted, keep_freed_memory, most_descriptors, most_leases, naming_limits
from mdsx.base.process.pool import Report, deliver
from mdsx.base.process.scheduler import THREADS, Scheduler, ThreadShare
from mdsx.base.process.threads import PREFETCH, REQUESTS, Kind, Share
from mdsx.base.process.turns import Turn
from mdsx.base.process.workers import Engine, Workers

__all__ = [
    "PREFETCH",
    "REQUESTS",
    "THREADS",
    "Counter",
    "Counters",
    "Engine",
    "Kind",
    "Owner",
    "Report",
    "Scheduler",
    "Share",
    "ThreadShare",
    "Turn",
    "Workers",
    "at_fork",
    "count",
    "deliver",
    "exhausted",
    "find_local_ranks",
    "find_ranks",
    "find_ranks_per_node",
    "holding_interrupts",
    "in_flight",
    "is_first",
    "keep_freed_memory",
    "most_descriptors",
    "most_leases",
    "naming_limits",
    "work_for",
]
