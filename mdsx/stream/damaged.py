"""Reads samples one by one after reading them together failed: the sound ones, and the errors of the others.

This is slow, so it happens only after a CorruptError. Errors of a whole shard are raised: it is another one, it is
missing, or storage fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.shards import Columns, Selection, View

SelectOne = Callable[[int, NDArray[np.int64]], list[Selection | CorruptError]]
"""(shard, samples) -> each of the samples by itself, or its error."""


class Failure(NamedTuple):
    """A sample left out of its batch, and why."""

    position: int  # in the epoch
    shard: int  # in the view
    sample: int  # as stored
    error: Exception

    @property
    def place(self) -> str:
        return place_of(self.position, self.shard, self.sample)


def place_of(position: int, shard: int, sample: int) -> str:
    """Return a sample's name for messages."""
    return f"position {position}, shard {shard}, sample {sample}"


def sound_columns(
    view: View,
    shards: NDArray[np.int64],
    samples: NDArray[np.int64],
    select: SelectOne,
    *,
    views: bool,
    join: bool = False,
) -> tuple[Columns, NDArray[np.int64], dict[int, CorruptError]]:
    """Return the columns of the sound ones of `samples`, their places in `samples`, and the error at each other
    place."""
    found: dict[int, tuple[int, Selection]] = {}
    wrong: dict[int, CorruptError] = {}
    for shard in np.unique(shards).tolist():
        here = np.flatnonzero(shards == shard)
        for place, one in zip(here.tolist(), select(shard, samples[here]), strict=True):
            if isinstance(one, CorruptError):
                wrong[place] = one
            else:
                found[place] = shard, one
    try:
        columns = _gather(view, found, views=views, join=join)
    except CorruptError:  # in a value
        for place, source in list(found.items()):
            try:
                _gather(view, {place: source}, views=True)  # decoded, which checks more than `join` does
            except CorruptError as error:
                wrong[place] = error
                del found[place]
        columns = _gather(view, found, views=views, join=join)
    return columns, np.array(sorted(found), np.int64), wrong


def _gather(view: View, found: dict[int, tuple[int, Selection]], *, views: bool, join: bool = False) -> Columns:
    sources = [found[place] for place in sorted(found)]
    (columns,) = view.gather(sources, np.arange(len(sources)), [len(sources)], views=views, join=join)
    return columns
