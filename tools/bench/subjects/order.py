"""The order of 10^8 and 10^12 samples: its construction, its first batch, its stream."""

from __future__ import annotations

import numpy as np

import mdsx
from tools.bench.measure import Figures, peak, timed
from tools.bench.subject import Subject
from tools.bench.subjects import alone

_STREAMED = 10_000_000  # samples
_BATCH = 512
_RUN = 16_384  # positions that are located together, as the reader does with many batches
_PER_SHARD = 500_000


def subjects(scale: float) -> list[Subject]:
    streamed = max(int(_STREAMED * scale), 100_000)
    found = [
        alone("mdsx", f"mdsx, 10^{power} samples", order, samples=int(10**power * scale), streamed=streamed)
        for power in (8, 12)
    ]
    return [
        Subject(
            name="order",
            title="The order of an epoch, in shards of 500,000 samples",
            figure="construct, s",
            more=("first batch s", "ns/sample", "MB in all"),
            contestants=found,
            note="The first batch is of 512 samples at a tenth of the epoch; memory is that of the whole process.",
        )
    ]


def order(samples: int, streamed: int) -> Figures:
    """Construct it, locate the first batch at 10 % of the epoch, then stream; memory is that of the whole process."""
    counts = np.full(max(samples // _PER_SHARD, 1), _PER_SHARD, np.int64)
    made, construct = timed(lambda: mdsx.Order(counts, seed=7, epoch=3))
    position = len(made) // 10
    streamed = min(streamed, len(made) - position)

    def stream() -> None:
        for start in range(position, position + streamed, _RUN):
            made.locate(np.arange(start, min(start + _RUN, position + streamed)))

    _, first = timed(lambda: made.locate(np.arange(position, position + _BATCH)))
    _, took = timed(stream)
    figures: Figures = {"construct, s": construct, "first batch s": first, "ns/sample": took / streamed * 1e9}
    return {**figures, "MB in all": peak() / 1e6}
