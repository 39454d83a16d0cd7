"""Sources: where the samples of a conversion come from.

A source lists *units*, each converted as a whole and in order: a tar, a row group, a range of bytes of a JSONL file. It
infers the columns from its first samples, and yields the samples of one unit. All else is the pipeline's, and the same
for every source: parts, processes, resume, skipped samples, progress.
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
    """A sample, with what `SampleSource.place_of` needs to say where it is."""

    values: Mapping[str, Any]
    place: Any


class Block(NamedTuple):
    """`samples` samples as columns, as `Writer.write_batch` takes them: Arrow data, or columns that can be sliced.

    `place(i)` is what `SampleSource.place_of` needs for sample i. If one of them is invalid, the pipeline writes the
    others in smaller blocks.
    """

    columns: Any
    samples: int
    place: Callable[[int], Any]


class Counted(NamedTuple):
    """More of what `SampleSource.amounts` names: since the last one of these in the unit."""

    amounts: Sequence[int]


Item: TypeAlias = Row | Block | Counted | MdsxError
"""What a source yields."""


@dataclass(frozen=True)
class Request:
    """What the caller of a conversion asked for.

    `declared`: column -> type, instead of inferred ones. `rename`: new name -> old names; `drop`: what to leave out.
    `skip`: whether invalid samples are left out. `options`: of the sources' storage. `only`: the columns to read, by
    their names in the source, where nobody asks for the others; sources of lines, tars and Parquet files know it.
    """

    sources: Sequence[Any]
    declared: Mapping[str, str]
    rename: Mapping[str, str | Sequence[str]]
    drop: Sequence[str]
    skip: bool
    options: StorageOptions | None
    only: Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sealed(self.options))


class SampleSource(ABC):
    """A source of samples. It is pickled: worker processes read its units.

    `files`, `units` and `settings` identify the samples: the same conversion continues only if all of them are equal.
    """

    kind: ClassVar[str]
    """The name of this kind of source: `mdsx convert KIND`."""
    files: Sequence[File]
    units: Sequence[Unit]
    settings: Mapping[str, Any]
    """All else that the samples depend on but columns: options, renamed and dropped columns. It can be JSON."""

    @abstractmethod
    def columns(self) -> tuple[dict[str, str], list[str]]:
        """Return the columns, from the first samples, and warnings about likely mistakes.

        Raise the first error in these samples, unless errors are skipped. Raise UsageError if there is no sample.
        """

    @abstractmethod
    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Item, None, None]:
        """Yield the samples of a unit in order, and an error for each invalid one or damaged stretch.

        `count` is called with the number of bytes that were read, up to `unit.size` in all. Memory is bounded. The
        caller closes the iterator.
        """

    @abstractmethod
    def place_of(self, place: Any) -> str:
        """Return where a sample is in its file, for messages: "line 12"."""

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        """Return the writer's error for the values of a sample in terms of the source."""
        column = (error.place or "").removeprefix("sample 0 of the batch, ")  # it was a block of one
        where = ", ".join(filter(None, (self.place_of(place), column)))
        hint = error.hint or "--column NAME=TYPE declares another type, --drop NAME leaves the column out"
        return restated(error, file=self.files[unit.file].url, place=where, hint=hint)

    lengths: Sequence[str] = ()
    """The columns whose lengths are stored; see `mdsx.Writer`."""
    amounts: Sequence[str] = ()
    """What the source counts beside samples, for the progress: see `Counted`."""

    def metadata(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return what the source adds to the metadata of the dataset with these columns."""
        return {}
