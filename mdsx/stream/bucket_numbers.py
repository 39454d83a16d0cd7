"""The bucket number of each sample, in place of its length: from stored sizes, or from given numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError, shown
from mdsx.order import NO_BUCKET, Bucketing
from mdsx.shards import Lengths, View


class BucketNumbers:
    """The number of each sample's bucket. `values`: heights and widths, or the numbers that define the buckets."""

    mean = None
    total = None

    def __init__(self, view: View, rule: Bucketing, values: Sequence[Lengths]) -> None:
        self._view, self._rule, self._values = view, rule, values

    @property
    def identity(self) -> Mapping[str, Any]:
        each = [values.identity for values in self._values]
        return {"pair": each} if self._rule.of_pairs else each[0]

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        values = np.stack([each.of(shards, samples) for each in self._values], axis=1)
        found = self._rule.buckets_of(values if self._rule.of_pairs else values[:, 0])
        without = found == NO_BUCKET
        if without.any():
            first = int(np.argmax(without))
            raise self._refused(int(shards[first]), int(samples[first]), values[first].tolist())
        return found

    def _refused(self, shard: int, sample: int, values: list[int]) -> SampleError:
        place = f"sample {sample}"
        if self._rule.of_pairs:
            return SampleError(
                "a sample has no size, so it belongs to no bucket",
                file=self._view.file(shard),
                place=place,
                found=f"height {values[0]}, width {values[1]}",
                hint="leave out such samples, with dataset.select(...), or store their sizes",
            )
        return SampleError(
            "a sample's number belongs to no bucket",
            file=self._view.file(shard),
            place=place,
            found=values[0],
            expected=f"one of sizes={shown(self._rule.sizes)}",
            hint="add it to sizes=, or leave out such samples, with dataset.select(...)",
        )
