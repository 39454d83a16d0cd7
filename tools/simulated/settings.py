"""The settings that are measured and simulated: each stresses another part of the loader."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mdsx

_DRAW = 11
_HALF = bytes(number % 16 for number in range(256))  # zstd makes half of such bytes
_OVERHEAD = 64  # bytes of a row beside the data, and more


@dataclass(frozen=True)
class Setting:
    """A dataset, a node and a loader.

    `sizes`: the least and the most bytes of a sample; if they differ, its data is of variable size. `shard_samples`: on
    average. `cache`: its limit as a share of the dataset. `rate` in bytes a second; `rtt` and `step` in seconds.
    `block`: samples of a shuffle block. `exact`: whether bytes and requests do not depend on the moment at which
    anything happens, so that they must be equal.
    """

    title: str
    samples: int
    rate: float
    sizes: tuple[int, int] = (8192, 8192)
    shard_samples: int = 128
    batch: int = 32
    ranks: int = 1
    workers: int = 0
    epochs: int = 1
    step: float = 0.01
    rtt: float = 0.02
    cache: float = 4.0
    compression: str | None = None
    block: int = 4096
    exact: bool = True

    @property
    def shard_bytes(self) -> int:
        return self.shard_samples * (sum(self.sizes) // 2 + _OVERHEAD)

    @property
    def needs_shards(self) -> bool:
        """Whether the index alone does not say which bytes a sample read by range takes."""
        return self.sizes[0] < self.sizes[1] or self.compression is not None

    def write(self, folder: Path) -> int:
        """Write the dataset, and return the bytes of its shards as they are stored."""
        chance = random.Random(_DRAW)
        least, most = self.sizes
        kind = f"uint8[{least}]" if least == most else "bytes"
        columns = {"id": "int64", "data": kind}
        with mdsx.Writer(folder, columns, shard_size=self.shard_bytes, compression=self.compression) as out:
            for number in range(self.samples):
                data = chance.randbytes(chance.randint(least, most)).translate(_HALF)
                out.write({"id": number, "data": np.frombuffer(data, np.uint8) if least == most else data})
        return sum(path.stat().st_size for path in folder.glob("shard.*"))


_MB = 10**6
SETTINGS = [
    Setting("1 rank, no workers, a link slower than the steps", 24_000, 10 * _MB),
    Setting("1 rank, 2 workers", 16_000, 6 * _MB, workers=2, step=0.015),
    Setting(
        "4 ranks that share a cache, samples of 1 to 16 kB", 24_000, 10 * _MB, sizes=(1024, 16384), batch=8, ranks=4
    ),
    Setting("2 epochs, a cache of 60 % of the dataset", 16_000, 7 * _MB, epochs=2, cache=0.6, block=1024),
    Setting(
        "zstd, small shards, a round trip of 200 ms", 24_000, 40 * _MB,
        shard_samples=48, step=0.005, rtt=0.2, compression="zstd", block=1536,
    ),
    Setting("a cache of 15 %, where most samples are read by range", 6_000, 10 * _MB, cache=0.15, exact=False),
]  # fmt: skip
