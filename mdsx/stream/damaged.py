"""Read samples one by one after reading them together failed: the undamaged ones, and the errors of the others.

This is slow, so it happens only after a CorruptError. Errors of a whole shard are raised: the shard was replaced or is
missing, or storage failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.shards import Columns, Selection, View

SelectOne = Callable[[int, NDArray[np.int64]], list[Selection | CorruptError]]
"""(shard, samples) -> for each sample, its source or its error."""


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
    """Return a sample's place, for messages."""
    return f"position {position}, shard {shard}, sample {sample}"


def sound_columns(
    view: View,
    shards: NDArray[np.int64],
    samples: NDArray[np.int64],
    select: SelectOne,
    *,
    views: bool,
    stored: bool = False,
    seeds: NDArray[np.uint64] | None = None,
) -> tuple[Columns, NDArray[np.int64], dict[int, CorruptError]]:
    """Return the columns of the undamaged ones among `samples`, their places in `samples`, and the error at each other
    place. `seeds`: one per sample, for decoders."""
    found: dict[int, list[tuple[int, Selection]]] = {place: [] for place in range(len(samples))}
    wrong: dict[int, CorruptError] = {}
    read, numbers, places = view.expand(shards, samples)
    for shard in np.unique(read).tolist():
        here = np.flatnonzero(read == shard)
        for place, one in zip(places[here].tolist(), select(shard, numbers[here]), strict=True):
            if isinstance(one, CorruptError):
                wrong.setdefault(place, one)
            else:
                found[place].append((shard, one))
    for place in wrong:
        del found[place]
    try:
        columns = _gather(view, found, seeds, views=views, stored=stored)
    except CorruptError:  # a value is damaged
        for place, sources in list(found.items()):
            try:
                _gather(view, {place: sources}, seeds, views=True)  # decoded, which checks more than `stored` does
            except CorruptError as error:
                wrong[place] = error
                del found[place]
        columns = _gather(view, found, seeds, views=views, stored=stored)
    return columns, np.array(sorted(found), np.int64), wrong


def _gather(
    view: View,
    found: dict[int, list[tuple[int, Selection]]],
    seeds: NDArray[np.uint64] | None,
    *,
    views: bool,
    stored: bool = False,
) -> Columns:
    places = sorted(found)
    sources = [(number, source) for number, place in enumerate(places) for source in found[place]]
    numbers = np.array([number for number, _ in sources], np.int64)
    own = None if seeds is None else seeds[places]
    (columns,) = view.gather(
        [source for _, source in sources], numbers, [len(found)], views=views, stored=stored, seeds=own
    )
    return columns
