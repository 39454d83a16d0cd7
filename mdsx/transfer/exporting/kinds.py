"""The protocol of a kind of exports, which makes the bytes of one file after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mdsx.errors import SampleError
from mdsx.shards import Columns

if TYPE_CHECKING:
    from typing_extensions import Buffer


class File(Protocol):
    """A file that is being made, in memory."""

    def add(self, columns: Columns, first: int) -> None:
        """Add the next samples; `first` is the first one's number. Raise SampleError for one that does not fit."""

    def finish(self) -> Buffer:
        """Return the whole file."""


class ExportKind(Protocol):
    """A kind of files, with its options, for the columns of one dataset. It is pickled to worker processes."""

    @property
    def suffix(self) -> str:
        """Return the suffix of file names."""

    @property
    def joined(self) -> bool:
        """Return whether `File.add` gets columns in storage form, and JoinedValues, instead of decoded values."""

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options that determine the bytes."""

    def forms(self) -> dict[str, str]:
        """Return how each column's values are written, in a few words."""

    def file(self) -> File:
        """Begin a file."""


def misfit(file: str, number: int, column: str, problem: str, **fields: Any) -> SampleError:
    """Return the error for a sample's value that an export cannot hold."""
    return SampleError(problem, file=file, place=f"sample {number}, column {column!r}", **fields)
