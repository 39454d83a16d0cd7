"""Vectors of runs with a plan: `plans-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx.
"""

from __future__ import annotations

import json
from typing import Any

from tests.order.reference_groups import Rule
from tests.order.reference_plans import PlannedRun, Stage

_LENGTHS = [[n * 13 % 31 for n in range(40)], [n * 11 % 23 for n in range(18)], [n * 7 % 29 + 1 for n in range(12)]]
_PACK, _WIDE, _CONCAT = Rule("pack", 32, 4), Rule("pack", 48, 6), Rule("concat", 32, 4, None)
_RUNS: list[dict[str, Any]] = [
    {"stages": [Stage(0, [3, 1, 0], _PACK, 4), Stage(300, [1, 1, 2], _PACK, 6)]},  # a step in both phases
    {"stages": [Stage(0, [3, 1, 0], _PACK, 4), Stage(400, [1, 0, 1], _WIDE, 4)], "epochs": 2},  # another grid
    {"stages": [Stage(0, [1, 1, 1], _CONCAT, 3), Stage(250, [1, 1, 1], _CONCAT, 5), Stage(500, [0, 0, 1], _PACK, 5)]},
    {"stages": [Stage(0, [1, 1, 1], _PACK, 3), Stage(1, [1, 0, 0], _WIDE, 2), Stage(2, [0, 1, 0], _PACK, 4)]},
    {"stages": [Stage(0, [2, 1, 1], _CONCAT, 4)], "skip": [[1, 3], [6, 7]], "drop_last": True, "epochs": 2},
]


def text() -> str:
    return '{"runs": [\n' + ",\n".join(json.dumps(_run(**given)) for given in _RUNS) + "\n]}\n"


def _run(
    stages: list[Stage], *, epochs: int = 1, drop_last: bool = False, skip: list[list[int]] | None = None
) -> dict[str, Any]:
    given: dict[str, Any] = {"seed": 7, "lanes": 2, "epoch_samples": 70, "epochs": epochs, "drop_last": drop_last}
    counts = [[len(lengths)] for lengths in _LENGTHS]
    ranges = [(start, stop) for start, stop in skip or []]
    run = PlannedRun(_LENGTHS, counts, stages, block=16, skip=ranges, **given)
    return {
        "lengths": _LENGTHS,
        **given,
        "shuffle_block": 16,
        "phases": [
            {"at": stage.at, "proportions": stage.weights, **stage.rule._asdict(), "groups": stage.size}
            for stage in stages
        ],
        "skip": skip or [],
        "value": run.steps,
        "ticks": [tick for tick, _ in run.phases],
        "consumed": vars(run.accounts),
    }
