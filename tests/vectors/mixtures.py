"""Vectors of mixtures in runs, and of the fingerprints of schedules: `mixtures-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. Seeds are decimal text.
"""

from __future__ import annotations

import json
from typing import Any

import xxhash

from tests.order import reference

_RUNS: list[dict[str, Any]] = [
    {"counts": [[9, 4], [7]], "seed": 0, "lanes": 1, "shuffle_block": 32, "run": 5, "phases": [[0, [1, 1]]]},
    {
        "counts": [[40, 60], [30], [5, 5]],
        "seed": 2**64 - 1,
        "lanes": 8,
        "shuffle_block": 16,
        "run": 24,
        "phases": [[0, [0.7, 0.2, 0.1]], [97, [0, 1, 0]], [120, [1, 0, 0]], [168, [1, 1, 1]], [191, [1, 0, 1]]],
    },
    {
        "counts": [[1500, 700], [2049], [3]],  # two are read lane by lane
        "seed": 11,
        "lanes": 2,
        "shuffle_block": 100,
        "run": 64,
        "phases": [[0, [2, 1, 1]], [999, [1, 4, 0]], [2600, [1, 1, 1]]],
    },
]
_POSITIONS = 120
_SCHEDULES: list[dict[str, Any]] = [
    {"fingerprints": [32 * "0", 32 * "1"], "schedule": [[0, [3, 1]]]},
    {"fingerprints": [32 * "0", 32 * "1"], "schedule": [[0, [3, 1]], [10_000_000, [0.5, 0.5]]]},
    {"fingerprints": [32 * "0", 32 * "1", 32 * "2"], "schedule": [[0, [0.1, 0, 0.3]], [1, [0, 0, 1]], [7, [1, 1, 1]]]},
]


def text() -> str:
    lists = {"runs": list(map(_run, _RUNS)), "schedule_fingerprint": list(map(_schedule, _SCHEDULES))}
    parts = ['"order_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _run(options: dict[str, Any]) -> dict[str, Any]:
    (_, weights), *later = options["phases"]
    mixture = reference.Mixture(
        options["counts"], weights, options["seed"], options["lanes"], options["shuffle_block"], later, options["run"]
    )
    last = max(start for start, _ in options["phases"])
    all_of_them = mixture.positions(last + _POSITIONS)
    positions = sorted({*range(_POSITIONS // 2), *range(max(last - 10, 0), last + _POSITIONS)})
    value = [all_of_them[p] for p in positions]
    return {**options, "seed": str(options["seed"]), "positions": positions, "value": value}


def _schedule(options: dict[str, Any]) -> dict[str, Any]:
    lines = ["mixture", *options["fingerprints"]]
    if len(options["schedule"]) > 1:
        for start, weights in options["schedule"]:
            lines.append(f"{start}:" + ",".join(f"{bound:016x}" for bound in reference.Mixture.bounds_of(weights)))
    text = "\n".join(lines)
    return {**options, "text": text, "value": xxhash.xxh3_128_hexdigest(text.encode())}
