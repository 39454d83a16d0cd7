"""Vectors of concatenated rows, their default windows and dealing by cost: `concat-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. Seeds are decimal text.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from tests.order import reference_groups
from tests.order.reference_groups import Group, Rule
from tests.vectors.group_epochs import epoch_of

_ORDER: dict[str, Any] = {"counts": [11, 0, 18], "seed": 7, "lanes": 3, "shuffle_block": 9, "shuffle": True}
_MIXTURE: dict[str, Any] = {"counts": [[11, 6], [12]], "weights": [2, 1], "seed": 7, "lanes": 3, "shuffle_block": 9}
_ZEROS = [0 if number % 3 else number * number * 7 % 43 for number in range(29)]
_EPOCH: dict[str, Any] = {"epoch": 0, "epoch_samples": 29}


def rule(capacity: int, window: int) -> Rule:
    return Rule("concat", capacity, window, None)


_EPOCHS: list[dict[str, Any]] = [
    {**_ORDER, **_EPOCH, "rule": rule(16, 4)},
    {**_ORDER, **_EPOCH, "lengths": _ZEROS, "rule": rule(16, 4)},  # many samples of 0 values
    {**_ORDER, **_EPOCH, "lengths": _ZEROS, "rule": rule(9, 2)},
    {**_ORDER, **_EPOCH, "lengths": [0] * 29, "rule": rule(9, 2)},  # nothing else
    {**_ORDER, **_EPOCH, "lengths": [0] * 28 + [100], "rule": rule(9, 20)},
    {**_ORDER, **_EPOCH, "rule": rule(1000, 4)},  # all of it is left over
    {**_ORDER, **_EPOCH, "lanes": 1, "shuffle_block": 29, "rule": rule(16, 9)},
    {**_ORDER, **_EPOCH, "shuffle": False, "lanes": 1, "rule": rule(16, 9)},
    {**_ORDER, **_EPOCH, "shuffle": False, "lanes": 1, "lengths": _ZEROS, "rule": rule(7, 29)},
    {**_ORDER, **_EPOCH, "lanes": 40, "rule": rule(20, 2)},  # more lanes than samples
    {**_ORDER, "epoch": 3, "epoch_samples": 17, "rule": rule(42, 3)},  # from an epoch of the dataset to the next
    {**_ORDER, "epoch": 1, "epoch_samples": 71, "lengths": _ZEROS, "rule": rule(5, 5)},
    {**_ORDER, **_EPOCH, "rule": rule(1, 100)},
    {**_MIXTURE, "epoch": 2, "epoch_samples": 20, "rule": rule(16, 4)},
]
_WINDOWS: list[tuple[int, float | None, int]] = [
    (2048, 1649.0, 8),
    (2048, 1649.0, 1),
    (2048, 1649.0, 100),
    (131072, 1649.0, 512),
    (131072, 1649.0, 65536),
    (64, 0.5, 1024),
    (16, 1.0, 3),
    (2**32 - 1, 0.25, 8),
    (4096, 0.0, 8),
    (4096, None, 64),
]
_DEALS: list[dict[str, Any]] = [
    {"sizes": [[8]] * 8, "linear": 5, "quadratic": 1, "world": 4, "node": 2},  # ties
    {"sizes": [[0], [0], [8], [0], [0], [3], [0], [0]], "linear": 1, "quadratic": 0, "world": 2, "node": 2},
    {"sizes": [[8], [4, 4], [2] * 4, [7, 1], [6, 2], [1] * 8, [5, 3], [3, 3, 2]], "linear": 0, "quadratic": 1},
    {"sizes": [[8], [4, 4], [2] * 4, [7, 1], [6, 2], [1] * 8, [5, 3]], "linear": 2, "quadratic": 3},
    {"sizes": [[5], [9], [2], [7], [1]], "linear": 1, "quadratic": 0, "world": 12, "node": 3},  # ranks without rows
    {"sizes": [[5], [9], [2], [7], [1]], "linear": 1, "quadratic": 0, "world": 2, "node": 1},
    {"sizes": [[2**31 - 1], [1], [2**31 - 2], [3]], "linear": 0, "quadratic": 2, "world": 2, "node": 2},
    {"sizes": [[n * 37 % 64, n] for n in range(48)], "linear": 12, "quadratic": 1, "world": 12, "node": 4},
]


def text() -> str:
    lists: dict[str, list[dict[str, Any]]] = {
        "epochs": list(map(epoch_of, _EPOCHS)),
        "default_window": [
            {"capacity": capacity, "mean": mean, "lanes": lanes, "value": _window(capacity, mean, lanes)}
            for capacity, mean, lanes in _WINDOWS
        ],
        "deal": [_deal({"world": 4, "node": 2, **given}) for given in _DEALS],
    }
    parts = ['"groups_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _window(capacity: int, mean: float | None, lanes: int) -> int:
    return reference_groups.default_window(capacity, None if mean is None else Fraction(mean), "concat", lanes)


def _deal(given: dict[str, Any]) -> dict[str, Any]:
    placed: list[Group] = [(0, [(place, 0, size) for size in sizes]) for place, sizes in enumerate(given["sizes"])]
    balance = given["linear"], given["quadratic"]
    return {**given, "value": reference_groups.dealt(placed, balance, given["world"], given["node"])}
