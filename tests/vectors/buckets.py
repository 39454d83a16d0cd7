"""Vectors of batches of one shape: `buckets-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. Seeds are decimal text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.order import reference, reference_groups
from tests.order.reference_buckets import Size, bucket_of, by_place, default_window, window_groups

_ORDER: dict[str, Any] = {"counts": [11, 0, 18], "seed": 7, "lanes": 3, "shuffle_block": 9, "shuffle": True}
_MIXTURE: dict[str, Any] = {"counts": [[11, 6], [12]], "weights": [2, 1], "seed": 7, "lanes": 3, "shuffle_block": 9}
_SIZES: list[Size] = [(512, 512), (576, 448), (448, 576), (704, 384)]
_SAMPLES: list[Size] = [(200 + number * 37 % 400, 200 + number * number * 11 % 500) for number in range(29)]
_NUMBERS: list[Size] = [number * number % 5 for number in range(29)]
_EPOCH: dict[str, Any] = {"epoch": 0, "epoch_samples": 29, "sizes": _SIZES, "samples": _SAMPLES}
_EPOCHS: list[dict[str, Any]] = [
    {**_ORDER, **_EPOCH, "batch_sizes": [4, 4, 4, 4], "window": 10},
    {**_ORDER, **_EPOCH, "batch_sizes": [4, 3, 2, 1], "window": 4},
    {**_ORDER, **_EPOCH, "batch_sizes": [1, 1, 1, 1], "window": 10},
    {**_ORDER, **_EPOCH, "batch_sizes": [50, 50, 50, 50], "window": 10},  # no group is whole
    {**_ORDER, **_EPOCH, "lanes": 1, "shuffle_block": 29, "batch_sizes": [5, 2, 3, 4], "window": 29},
    {**_ORDER, **_EPOCH, "lanes": 40, "batch_sizes": [3, 3, 3, 3], "window": 1},  # more lanes than samples
    {**_ORDER, **_EPOCH, "shuffle": False, "lanes": 1, "batch_sizes": [3, 3, 3, 3], "window": 9},
    {**_ORDER, **_EPOCH, "sizes": [0, 1, 4], "samples": _NUMBERS, "batch_sizes": [5, 3, 4], "window": 6},
    {**_ORDER, **_EPOCH, "sizes": [4, 1, 0], "samples": _NUMBERS, "batch_sizes": [5, 3, 4], "window": 6},
    {**_ORDER, **_EPOCH, "epoch": 3, "epoch_samples": 17, "batch_sizes": [4, 3, 2, 2], "window": 3},
    {**_ORDER, **_EPOCH, "epoch": 1, "epoch_samples": 71, "batch_sizes": [4, 3, 2, 2], "window": 5},
    {**_MIXTURE, **_EPOCH, "epoch": 2, "epoch_samples": 20, "batch_sizes": [3, 3, 3, 3], "window": 4},
]
_MANY: list[Size] = [(16 * (64 - k), 16 * (16 + k)) for k in range(0, 49, 4)]
_BUCKETS: list[tuple[Sequence[Size], Sequence[Size]]] = [
    (_SIZES, [*_SAMPLES, (512, 512), (1, 1), (4, 1), (1, 9), (0, 5), (5, 0), (2**32 - 1, 1), (2**32 - 1, 2**32 - 1)]),
    ([(1, 1), (4, 1)], [(2, 1), (2000, 1001), (2001, 1000), (1999, 1000), (3, 1)]),  # (2, 1) is in the middle
    ([(4, 1), (1, 1)], [(2, 1), (2000, 1001), (2001, 1000), (1999, 1000), (3, 1)]),
    ([(3, 1), (3, 2), (12, 1)], [(6, 1), (600_000_001, 100_000_000), (599_999_999, 100_000_000)]),
    ([(1, 2**32 - 1), (2**32 - 1, 1), (7, 7)], [(1, 65535), (1, 65536), (65535, 1), (65536, 1), (8, 8)]),
    ([(2**32 - 1, 2**32 - 2), (2**32 - 2, 2**32 - 3)], [(2**32 - 1, 2**32 - 2), (2**31, 2**31), (3, 2)]),
    (_MANY, [(100 + 37 * k % 900, 100 + 53 * k % 900) for k in range(40)]),
    ([7, 3, 0, 2**32 - 1], [3, 7, 0, 2**32 - 1, 1]),
]


def text() -> str:
    lists = {
        "bucket": [
            {"sizes": sizes, "samples": samples, "value": [bucket_of(each, sizes) for each in samples]}
            for sizes, samples in _BUCKETS
        ],
        "epochs": list(map(epoch_of, _EPOCHS)),
        "default_window": [{"lanes": lanes, "value": default_window(lanes)} for lanes in (1, 3, 8, 512)],
    }
    parts = ['"groups_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def epoch_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return a vector of an epoch."""
    samples: list[Size] = given["samples"]
    seed, lanes, epoch, size = (given[name] for name in ("seed", "lanes", "epoch", "epoch_samples"))
    n, start, stop = len(samples), epoch * size, (epoch + 1) * size
    if "weights" in given:
        firsts = [[0, 11], [17]]
        mixture = reference.Mixture(given["counts"], given["weights"], seed, lanes, given["shuffle_block"])
        read = [firsts[component][shard] + sample for component, shard, sample in mixture.positions(stop)]
    else:
        firsts_of_shards, read = [0, 11, 11], []
        for of_order in range(-(-stop // n)):
            options = seed, of_order, lanes, given["shuffle_block"], given["shuffle"]
            places = reference.whole_order(given["counts"], *options)
            read += [firsts_of_shards[shard] + sample for shard, sample in places]
    cut = None if "weights" in given else n

    def bucket_at(p: int) -> int:
        bucket = bucket_of(samples[read[p]], given["sizes"])
        assert bucket is not None, "each sample has one"
        return bucket

    value = []
    for positions in reference_groups.epoch_windows(start, stop, cut, given["window"] * lanes):
        groups = window_groups(positions, bucket_at, given["batch_sizes"])
        value.append(
            [[by_place(each, lambda p: (p % cut if cut else p) % lanes, lanes) for each in part] for part in groups]
        )
    return {**given, "seed": str(seed), "value": value}
