"""What packing adds to samples: a token before and after each sample, labels, and the component of each token.

Added tokens count towards the sample's length: a sample of n values has length `n + added`, or 0 if n is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.format import INT64, NUMBERS, always_fits
from mdsx.shards import Lengths

IGNORED = -100
"""The label of a place without a next token, which PyTorch's losses ignore."""


class Extras(NamedTuple):
    """What a layout adds to samples."""

    labels: bool = False
    begin: int | None = None
    """The token before each sample."""
    end: int | None = None
    """The token after each sample."""
    tokens: str | None = None
    """The column of the tokens, if it was given."""
    component_ids: bool = False
    components: NDArray[np.int64] = np.zeros(1, np.int64)
    """The number of the first shard of each component."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that these add to a batch."""
        return ("labels",) * self.labels + ("component_ids",) * self.component_ids

    @property
    def of_tokens(self) -> tuple[str, ...]:
        """Return the names of the extras that need the column of the tokens."""
        found = {"labels": self.labels, "begin": self.begin is not None, "end": self.end is not None}
        return tuple(name for name, given in found.items() if given)

    @property
    def added(self) -> int:
        """Return how many tokens each sample that has values gets."""
        return (self.begin is not None) + (self.end is not None)

    def component_of(self, shards: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of the component of each of `shards`."""
        return (np.searchsorted(self.components, shards, side="right") - 1).astype(np.int32)

    def stored(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return lengths without the added tokens."""
        return np.maximum(lengths - self.added, 0)


NO_EXTRAS = Extras()


class AddedLengths:
    """Lengths of samples, including added tokens."""

    def __init__(self, lengths: Lengths, added: int) -> None:
        self._lengths, self._added = lengths, added

    @property
    def identity(self) -> Mapping[str, Any]:
        return {**self._lengths.identity, "added": self._added}

    @property
    def mean(self) -> Fraction | None:
        mean = self._lengths.mean
        return mean + self._added if mean is not None else None

    @property
    def total(self) -> int | None:
        return self._lengths.total  # of stored values only

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        found = self._lengths.of(shards, samples)
        return found + self._added * (found > 0)


def token_column(extras: Extras, lengths: tuple[str, ...], packed: Mapping[str, str]) -> str | None:
    """Return the column that labels and added tokens belong to; None if there are neither.

    It is the given column, or that of `lengths`, or the only one in `packed`, which has the type of each column in the
    batch. Raise UsageError if this is ambiguous, or if the column's type does not allow them.
    """
    if not extras.of_tokens:
        return None
    place = ", ".join(extras.of_tokens)
    name = extras.tokens or next((each for each in lengths if each in packed), None)
    if name is None and len(packed) == 1:
        (name,) = packed
    if name is None or name not in packed:
        raise UsageError(
            "the column of the tokens is ambiguous" if name is None else "the column of the tokens is not packed",
            place=place,
            found=name,
            expected=f"one of {', '.join(packed)}" if packed else "a one-dimensional column of integers",
            hint="name the column by tokens=",
        )
    kind = packed[name]
    if NUMBERS[kind].kind in ("bool", "float") or not always_fits(kind, INT64.name):
        raise UsageError(
            "tokens must be integers that fit int64",
            place=f"{place}, column {name!r}",
            found=kind,
            hint=f'give dtypes={{"{name}": "int64"}}, or another column by tokens=',
        )
    return name
