"""What a verification or a repair reports, while it runs and at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from mdsx.errors import MdsxError, MissingError
from mdsx.format import Ranges, filenames


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """The damages of a dataset, over which it iterates. `samples`, `shards`, `size`: how much was checked."""

    url: str
    samples: int
    shards: int
    size: int
    damages: tuple[MdsxError, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damages

    def __iter__(self) -> Iterator[MdsxError]:
        return iter(self.damages)

    def __len__(self) -> int:
        return len(self.damages)

    def __repr__(self) -> str:
        checked = f"{self.samples:,} samples in {self.shards:,} shards"
        return f"<Verification of {self.url}: {_found(self.damages)} in {checked}>"


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
        """How many samples are lost; None if that is not known."""
        return None if self.samples is None else sum(stop - start for start, stop in self.lost)

    @property
    def kept(self) -> int:
        """How many samples are sound."""
        return 0 if self.samples is None else self.samples - sum(stop - start for start, stop in self.lost)

    @property
    def drops(self) -> bool:
        """Whether anything of it cannot be kept."""
        return self.samples is None or bool(self.lost) or self.samples == 0


@dataclass(frozen=True, slots=True, repr=False)
class Repair:
    """A repair, which iterates over the damages that it found. `index`: what the index was found to be. `proven`: an
    index built anew is the original, to the last byte. `samples` and `shards`: of the dataset as it is afterwards, or
    would be. `written`: whether anything was. `old_index`: where the index that was replaced is kept. `fingerprint`:
    afterwards; `was`: before, where known."""

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
    def damages(self) -> tuple[MdsxError, ...]:
        """What was found damaged: the index first, then the shards in order, of each the first problems."""
        missing = (
            MissingError("it is not there", file=f"{self.url}/{filenames.INDEX}") if self.index == "missing" else None
        )
        index = [error for error in (self.index_error or missing,) if error is not None]
        return (*index, *(problem for shard in self.damaged for problem in shard.problems))

    @property
    def ok(self) -> bool:
        """Whether the dataset is sound now: nothing was damaged, or it was repaired."""
        return self.written or not self.needed

    def __iter__(self) -> Iterator[MdsxError]:
        return iter(self.damages)

    def __len__(self) -> int:
        return len(self.damages)

    def __repr__(self) -> str:
        done = "repaired" if self.written else "not repaired" if self.needed else "nothing to repair"
        lost = f", {self.lost_samples:,} samples lost" if self.lost_samples else ""
        return f"<Repair of {self.url}: {_found(self.damages)}, {done}{lost}>"

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


def _found(damages: tuple[MdsxError, ...]) -> str:
    return "1 damage" if len(damages) == 1 else f"{len(damages):,} damages" if damages else "no damage"
