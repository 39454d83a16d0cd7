"""The part of a state that belongs to one of several worker processes of PyTorch's own DataLoader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from mdsx.errors import StateError, shown


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """The batches of one of several worker processes: counted from position `origin` on, each number i with
    `i % count == id`. All workers must cut batches of the same size, or they repeat and lose samples."""

    id: int
    count: int
    origin: int
    global_batch: int

    def state(self, position: int) -> dict[str, int]:
        """Return the share as a field of a worker's state at `position`. At an epoch's start, `position` is the
        origin."""
        return {**asdict(self), "origin": min(self.origin, position)}

    @classmethod
    def parse(cls, found: Any, position: int) -> WorkerShare:
        """Return the share; raise StateError if a worker at `position` cannot have it."""
        try:
            if not isinstance(found, Mapping) or set(found) != {field.name for field in fields(cls)}:
                raise ValueError("the fields")
            if any(type(value) is not int for value in found.values()):
                raise ValueError("the types")
            share = cls(**found)
            if not (0 <= share.id < share.count and 0 <= share.origin <= position and share.global_batch > 0):
                raise ValueError("the ranges")
            taken, rest = divmod(position - share.origin, share.global_batch)
            if rest or (taken and (taken - 1) % share.count != share.id):
                raise ValueError("the position, which is the end of one of its batches")
        except (TypeError, ValueError):
            raise StateError(
                "not a worker's state",
                place="worker",
                found=shown(found),
                expected="what state_dict() returned in a worker process",
            ) from None
        return share

    def check_worker(self, id: int, count: int) -> None:
        """Raise StateError if this is not the share of worker `id` of `count`: its state fits no other."""
        if (self.id, self.count) != (id, count):
            raise StateError(
                "the state belongs to one of several workers" if self.count > 1 else "the state belongs to one worker",
                place="worker",
                found=f"{self.id} of {self.count}",
                expected=f"{id} of {count}",
                hint=f"resume with as many workers (num_workers={self.count}), or use StreamingDataLoader, whose "
                "state fits any number",
            )

    def check_size(self, batch_size: int, world_size: int) -> None:
        """Raise StateError if the batches of several workers have another size than in the state."""
        if self.count > 1 and self.global_batch != batch_size * world_size:
            raise StateError(
                "the state belongs to one of several workers, and fits no other batch size * world size",
                place="worker",
                found=f"batches of {self.global_batch} samples over all ranks",
                expected=f"{batch_size} * {world_size}",
                hint=f"resume with batch_size * world size = {self.global_batch} until the epoch ends, or use "
                "StreamingDataLoader, whose state fits any",
            )
