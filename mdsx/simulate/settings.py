"""The settings of a simulation: the cluster, the loader's arguments and the prices."""

from __future__ import annotations

from dataclasses import dataclass

from mdsx.base.sizes import format_size
from mdsx.errors import UsageError, shown
from mdsx.loader import PREFETCH

MADE_UP = "made up"  # the name of data that is no dataset's


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines.

    Attributes:
        nodes: How many machines.
        ranks_per_node: Training processes on each node.
        cache: Bytes that a node's cache may hold.
        rate: Bytes a second that a node gets from storage; None: no limit.
        latency: Seconds from a request to its first byte.
    """

    nodes: int
    ranks_per_node: int
    cache: int
    rate: float | None
    latency: float

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1", found=shown(getattr(self, name)))
        if self.cache < 1 or (self.rate is not None and self.rate <= 0) or self.latency < 0:
            found = f"a cache of {format_size(self.cache)}, {self.rate} B/s, {self.latency} s"
            raise UsageError("the cache and the link's rate must be above 0, its latency at least 0", found=found)

    @property
    def world_size(self) -> int:
        """Return the number of ranks on all nodes."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, slots=True)
class Loading:
    """The loader's arguments.

    Attributes:
        batch_size: Samples in a rank's batch.
        num_workers: Worker processes of each rank; 0: a thread.
        drop_last: Whether an epoch's short last batch is left out.
        step: Seconds that a training step takes.
        micro_batch: Rows in a rank's micro-batch; None: a step is one batch.
        prefetch_factor: Batches that each worker prepares ahead.
    """

    batch_size: int
    num_workers: int
    drop_last: bool
    step: float
    micro_batch: int | None = None
    prefetch_factor: int = PREFETCH

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.num_workers < 0 or self.prefetch_factor < 1:
            found = f"{self.batch_size}, {self.num_workers}, {self.prefetch_factor}"
            raise UsageError("batch_size and prefetch_factor must be at least 1, num_workers at least 0", found=found)
        if not self.step >= 0:
            raise UsageError("step must be at least 0 seconds", found=shown(self.step))


@dataclass(frozen=True, slots=True)
class Prices:
    """What storage costs, in `currency`."""

    per_thousand_requests: float
    per_gigabyte: float
    currency: str
