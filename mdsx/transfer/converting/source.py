"""Sources: where the samples of a conversion come from.

A source lists *units*, each converted as a whole and in order: a tar, a row group, a byte range of a JSONL file. It
infers the columns from its first samples, and yields the samples of one unit. The pipeline does the rest for every
source: parts, processes, resume, skipped samples, progress.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from mdsx.errors import MdsxError, SampleError, restated
from mdsx.storage import StorageOptions, sealed
from mdsx.transfer.converting.files import File


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of a source: `start` to `stop` of the file `files[file]`, in bytes, rows, or what the source counts.

    `size` is its share of the progress, in bytes.
    """

    file: int
    start: int
    stop: int
    size: int


class Row(NamedTuple):
    """A sample, and its place, for `SampleSource.place_of`."""

    values: Mapping[str, Any]
    place: Any


class Block(NamedTuple):
    """`samples` samples as columns for `Writer.write_batch`: Arrow data, or columns that can be sliced.

    `place(i)` is the place of sample i, for `SampleSource.place_of`. If a sample is invalid, the pipeline writes the
    others in smaller blocks.
    """

    columns: Any
    samples: int
    place: Callable[[int], Any]


class Counted(NamedTuple):
    """Increments of `SampleSource.amounts` since the last ones in the unit."""

    amounts: Sequence[int]


class Lost(NamedTuple):
    """Successive samples that cannot be read, all for one reason: their shard is damaged."""

    error: MdsxError
    samples: int

    @classmethod
    def of(cls, error: MdsxError, start: int, stop: int) -> Lost:
        """Return samples `start` to `stop` of a file, for which reading raised `error`."""
        named = f"samples {start} to {stop - 1}" if stop - start > 1 else f"sample {start}"
        return cls(restated(error, message=f"{error.message}, so {named} cannot be used"), stop - start)


Item: TypeAlias = Row | Block | Counted | Lost | MdsxError
"""What a source yields."""


@dataclass(frozen=True)
class Request:
    """A caller's request for a conversion.

    `declared`: column -> type, instead of inferred ones. `rename`: new name -> old names; `drop`: what to leave out.
    `skip`: whether invalid samples are left out. `options`: for the sources' storage. `only`: read only these columns,
    by their names in the source; the kinds that `tokenize` reads support it. `out`: the URL of the output, if known.
    """

    sources: Sequence[Any]
    declared: Mapping[str, str]
    rename: Mapping[str, str | Sequence[str]]
    drop: Sequence[str]
    skip: bool
    options: StorageOptions | None
    only: Sequence[str] | None = None
    out: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sealed(self.options))


class SampleSource(ABC):
    """A source of samples. It must be picklable, because worker processes read its units.

    `files`, `units` and `settings` identify the samples: a conversion continues only if all of them are equal.
    """

    kind: ClassVar[str]
    """The name of this kind of source: `mdsx convert KIND`."""
    files: Sequence[File]
    units: Sequence[Unit]
    settings: Mapping[str, Any]
    """What the samples depend on besides columns: options, renamed and dropped columns, as JSON."""

    @abstractmethod
    def columns(self) -> tuple[dict[str, str], list[str]]:
        """Return the columns, from the first samples, and warnings about likely mistakes.

        Raise the first error in these samples, unless errors are skipped. Raise UsageError if there are no samples.
        """

    @abstractmethod
    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Item, None, None]:
        """Yield the samples of a unit in order, and an error for each invalid sample or damaged stretch: `Lost` if the
        number of its samples is known.

        `count` is called with numbers of bytes that were read, up to `unit.size` in all. Memory is bounded. The caller
        closes the iterator.
        """

    @abstractmethod
    def place_of(self, place: Any) -> str:
        """Return where a sample is in its file, for messages: "line 12"."""

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        """Return the writer's error for a sample's values, in terms of the source."""
        column = (error.place or "").removeprefix("sample 0 of the batch, ")  # it was a block of one
        where = ", ".join(filter(None, (self.place_of(place), column)))
        hint = error.hint or "--column NAME=TYPE declares another type, --drop NAME leaves the column out"
        return restated(error, file=self.files[unit.file].url, place=where, hint=hint)

    lengths: Sequence[str] = ()
    """The columns whose lengths are stored; see `mdsx.Writer`."""
    amounts: Sequence[str] = ()
    """What the source counts besides samples, for the progress: see `Counted`."""

    def metadata(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return what the source adds to the metadata of a dataset with these columns."""
        return {}


def is_about(error: SampleError, column: str) -> bool:
    """Return whether the writer refused the value of this column."""
    return (error.place or "").endswith(f"column {column!r}")
