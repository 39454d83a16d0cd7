"""The reports of `verify` and `repair`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from mdsx.base.sizes import format_count
from mdsx.errors import MdsxError, MissingError
from mdsx.format import Ranges, filenames


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What `verify` found. Iterating over it yields the errors in `damages`.

    Attributes:
        url: The dataset.
        format: The name of its format, "mdsx" for mdsx's own. None if its index is damaged.
        samples: How many samples were checked.
        shards: How many shards were checked.
        size: How many stored bytes were checked.
        damages: One error for each problem found, in the order of the shards.
        checks: What could be checked, in the words of `mdsx info`. Empty if the index is damaged.
    """

    url: str
    format: str | None
    samples: int
    shards: int
    size: int
    damages: tuple[MdsxError, ...]
    checks: str = ""

    @property
    def ok(self) -> bool:
        """Return whether nothing is damaged."""
        return not self.damages

    def __iter__(self) -> Iterator[MdsxError]:
        return iter(self.damages)

    def __len__(self) -> int:
        return len(self.damages)

    def __repr__(self) -> str:
        checked = f"{format_count(self.samples, 'sample')} in {format_count(self.shards, 'shard')}"
        return f"<Verification of {self.url}: {_found(self.damages)} in {checked}>"


@dataclass(frozen=True, slots=True)
class ShardRepair:
    """A damaged shard in a `Repair`.

    Attributes:
        file: Its path or URL.
        problems: The first problems found in it.
        samples: How many samples it had, or None if that is unknown.
        first: The dataset's number, before the repair, of its first sample, or None if that is unknown.
        lost: The lost samples, by their numbers in the shard, as half-open ranges.
        replacement: The file with its other samples, or None.
    """

    file: str
    problems: tuple[MdsxError, ...]
    samples: int | None
    first: int | None
    lost: Ranges
    replacement: str | None = None

    @property
    def lost_samples(self) -> int | None:
        """Return how many samples are lost, or None if that is unknown."""
        return None if self.samples is None else sum(stop - start for start, stop in self.lost)

    @property
    def kept(self) -> int:
        """Return how many samples are undamaged."""
        return 0 if self.samples is None else self.samples - sum(stop - start for start, stop in self.lost)

    @property
    def drops(self) -> bool:
        """Return whether anything of the shard cannot be kept."""
        return self.samples is None or bool(self.lost) or self.samples == 0


@dataclass(frozen=True, slots=True, repr=False)
class Repair:
    """What `repair` found and did. Iterating over it yields the errors in `damages`.

    Attributes:
        url: The dataset.
        index: The state of the index before: "undamaged", "damaged" or "missing".
        samples: How many samples the dataset has after the repair, or would have.
        shards: How many shards it has after the repair, or would have.
        damaged: The damaged shards.
        index_error: What is wrong with a damaged index.
        proven: Whether a rebuilt index is proven to be the original, byte for byte.
        written: Whether anything was written.
        old_index: Where the replaced index is kept.
        fingerprint: The dataset's fingerprint after the repair, if one was written.
        was: Its fingerprint before, if known.
    """

    url: str
    index: Literal["undamaged", "damaged", "missing"]
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
        """Return the errors: the index's error, then the first problems of each shard, in order."""
        missing = MissingError("not found", file=f"{self.url}/{filenames.INDEX}") if self.index == "missing" else None
        index = [error for error in (self.index_error or missing,) if error is not None]
        return (*index, *(problem for shard in self.damaged for problem in shard.problems))

    @property
    def ok(self) -> bool:
        """Return whether the dataset is undamaged now, because nothing was damaged or it was repaired."""
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
        """Return whether there is anything to repair."""
        return self.index != "undamaged" or bool(self.damaged)

    @property
    def drops(self) -> bool:
        """Return whether anything would be lost, so that `drop_damaged` is needed."""
        return any(shard.drops for shard in self.damaged) or (self.index == "damaged" and not self.proven)

    @property
    def lost_samples(self) -> int:
        """Return how many samples are known to be lost."""
        return sum(shard.lost_samples or 0 for shard in self.damaged)


def _found(damages: tuple[MdsxError, ...]) -> str:
    return format_count(len(damages), "problem") if damages else "no damage"
