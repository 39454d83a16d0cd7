"""The run that is computed. Needs only the standard library: the command shows its fields as options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A run: `batch` samples for each rank in a step of `step` seconds."""

    samples: int = 10**10
    sample_bytes: int = 100_000
    nodes: int = 64
    ranks: int = 8  # of a node
    batch: int = 16
    step: float = 0.5

    @property
    def world(self) -> int:
        return self.nodes * self.ranks

    @property
    def bytes(self) -> int:
        return self.samples * self.sample_bytes

    @property
    def seconds(self) -> float:
        """Seconds of an epoch."""
        return self.samples / (self.batch * self.world) * self.step
