"""Vectors of mixtures with phases, of epochs that run on, and of selections: `phases-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. 64-bit numbers are decimal strings.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from tests.order import reference

_MIXTURES: list[dict[str, Any]] = [
    {"counts": [[9, 4], [7]], "seed": 0, "lanes": 1, "shuffle_block": 32, "phases": [[0, [1, 1]], [20, [3, 1]]]},
    {
        "counts": [[40, 60], [30], [5, 5]],
        "seed": 2**64 - 1,
        "lanes": 8,
        "shuffle_block": 16,
        "phases": [[0, [0.7, 0.2, 0.1]], [100, [0, 1, 0]], [101, [0.5, 0.25, 0.25]], [512, [1, 1, 1]]],
    },
    {
        "counts": [[1500, 700], [2049], [3]],  # two are read lane by lane
        "seed": 11,
        "lanes": 2,
        "shuffle_block": 100,
        "phases": [[0, [2, 1, 1]], [999, [1, 4, 0]], [2600, [1, 1, 1]]],
    },
]
_SELECTIONS: list[dict[str, Any]] = [
    {"counts": [10, 0, 25], "seed": 0, "start": 0.0, "stop": 0.9},
    {"counts": [10, 0, 25], "seed": 0, "start": 0.9, "stop": 1.0},
    {"counts": [33], "seed": 2**63, "start": 0.25, "stop": 0.75},
]
_POSITIONS = 120


def text() -> str:
    parts = [
        '"order_version": 1',
        '"phases": [\n' + ",\n".join(json.dumps(_mixture(options)) for options in _MIXTURES) + "\n]",
        '"selection": [\n' + ",\n".join(json.dumps(_selection(options)) for options in _SELECTIONS) + "\n]",
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _mixture(options: dict[str, Any]) -> dict[str, Any]:
    (_, weights), *later = options["phases"]
    mixture = reference.Mixture(
        options["counts"], weights, options["seed"], options["lanes"], options["shuffle_block"], later
    )
    last = max(start for start, _ in options["phases"])
    all_of_them = mixture.positions(last + _POSITIONS)
    positions = sorted({*range(_POSITIONS // 2), *range(last - 10, last + _POSITIONS)} & set(range(len(all_of_them))))
    return {
        **options,
        "seed": str(options["seed"]),
        "bounds": [[str(bound) for bound in bounds] for _, bounds in mixture.phases],
        "positions": positions,
        "value": [all_of_them[p] for p in positions],
    }


def _selection(options: dict[str, Any]) -> dict[str, Any]:
    start, stop = Fraction(options["start"]), Fraction(options["stop"])
    numbers = range(sum(options["counts"]))
    chosen = [n for n in numbers if reference.in_selection(n, options["seed"], start, stop)]
    return {**options, "seed": str(options["seed"]), "value": chosen}
