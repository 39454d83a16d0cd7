"""A process's threads, limits and children, and its ownership of objects after a fork."""

from mdsx.process.children import Owner, at_fork, end_with_parent, ignoring_interrupts
from mdsx.process.limits import exhausted, keep_freed_memory, most_leases, naming_limits
from mdsx.process.threads import PREFETCH, REQUESTS, Share

__all__ = [
    "PREFETCH",
    "REQUESTS",
    "Owner",
    "Share",
    "at_fork",
    "end_with_parent",
    "exhausted",
    "ignoring_interrupts",
    "keep_freed_memory",
    "most_leases",
    "naming_limits",
]
