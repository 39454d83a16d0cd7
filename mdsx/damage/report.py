"""What a repair found and did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mdsx.errors import MdsxError
from mdsx.format import Ranges


@dataclass(frozen=True, slots=True)
class ShardRepair:
    """A damaged shard. `lost`: the numbers of its lost samples in the shard, as half-open runs; `samples`: how many it
    had, None where nobody knows; `first`: the number in the dataset, as it was, of its first one, None likewise.
    `replacement`: the file that has its other samples, None where there is none or nothing was written."""

    file: str
    problems: tuple[MdsxError, ...]
    samples: int | None
    first: int | None
    lost: Ranges
    replacement: str | None = None

    @property
    def lost_samples(self) -> int | None:
        return None if self.samples is None else sum(stop - start for start, stop in self.lost)

    @property
    def drops(self) -> bool:
        """Whether anything of it cannot be kept."""
        return self.samples is None or bool(self.lost) or self.samples == 0


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair. `index`: what the index was found to be. `proven`: an index built anew is the original, to the last
    byte. `samples` and `shards`: of the dataset as it is afterwards, or would be. `written`: whether anything was.
    `old_index`: where the index that was replaced is kept. `fingerprint`: afterwards; `was`: before, where known."""

    url: str
    index: Literal["sound", "damaged", "missing"]
    samples: int
    shards: int
    damaged: list[ShardRepair] = field(default_factory=list)
    index_error: MdsxError | None = None
    proven: bool = True
    written: bool = False
    old_index: str | None = None
    fingerprint: str | None = None
    was: str | None = None

    @property
    def needed(self) -> bool:
        """Whether there is anything to repair."""
        return self.index != "sound" or bool(self.damaged)

    @property
    def drops(self) -> bool:
        """Whether something is lost, so that it must be told to."""
        return any(shard.drops for shard in self.damaged) or (self.index == "damaged" and not self.proven)

    @property
    def lost_samples(self) -> int:
        """How many samples are lost, where that is known."""
        return sum(shard.lost_samples or 0 for shard in self.damaged)
