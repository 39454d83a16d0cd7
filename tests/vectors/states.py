"""States that a run continues with, and states that it must refuse: `states-v1.json`.

Each vector changes one thing of a state that fits its run. What must happen is written here by hand.
"""

from __future__ import annotations

import json
from typing import Any

import xxhash

_RUN: dict[str, Any] = {
    "seed": "7",
    "lanes": 8,
    "shuffle_block": 64,
    "shuffle": True,
    "fingerprint": "a86040a30d08f39f26138182fab4dfc0",
    "epoch_samples": 103,
}
_STATE: dict[str, Any] = {"epoch": 2, "position": 96, "order_version": 1, **_RUN}
_START = {**_STATE, "position": 0}
_LAST = 2**62 // 103 - 1
_STATES: list[tuple[str, dict[str, Any], Any]] = [
    ("it fits", {}, [2, 96]),
    ("the end of an epoch", {"position": 103}, [2, 103]),
    ("beyond the epoch", {"position": 104}, "position"),
    ("the last epoch", {"epoch": _LAST, "position": 103}, [_LAST, 103]),
    ("an epoch beyond the ticks", {"epoch": _LAST + 1, "position": 0}, "epoch"),
    ("an epoch of 2^63", {"epoch": 2**63}, "epoch"),
    ("a negative position", {"position": -1}, "position"),
    ("a position that is no integer", {"position": 1.0}, "position"),
    ("an epoch that is a bool", {"epoch": True}, "epoch"),
    ("another version", {"order_version": 2}, "order_version"),
    ("a seed that is a number", {"seed": 7}, "seed"),
    ("a seed with a zero before it", {"seed": "07"}, "seed"),
    ("other lanes", {"lanes": 4}, "lanes"),
    ("another block", {"shuffle_block": 65}, "shuffle_block"),
    ("without shuffle", {"shuffle": False}, "shuffle"),
    ("another dataset", {"fingerprint": "b" * 32}, "fingerprint"),
    ("epochs of another length", {"epoch_samples": 104}, "epoch_samples"),
    ("a mixture in stretches", {"run": 8}, "run"),
    ("a key that is not known", {"later": 1}, "later"),
    ("phases, but no mixture", {"phases": [[0, [1, 1]]]}, "phases"),
    ("no seed", {"seed": None}, "seed"),
    ("other lanes and another block at the start of an epoch", {"position": 0, "lanes": 4, "shuffle_block": 9}, [2, 0]),
    ("lanes of 0 at the start of an epoch", {"position": 0, "lanes": 0}, "lanes"),
]
_MIXED = {**_RUN, "epoch_samples": 100}
_SCHEDULE: list[list[Any]] = [[0, [0.7, 0.3]], [150, [1, 1]]]
_PHASES: list[tuple[str, dict[str, Any], Any]] = [
    ("before the second entry", {"phases": [[0, [0.7, 0.3]]]}, [1, 49]),
    ("at the second entry", {"position": 50, "phases": [[0, [0.7, 0.3]], [150, [1, 1]]]}, [1, 50]),
    ("in the same proportion", {"phases": [[0, ["7", 3]]]}, "phases"),  # 0.7 is not 7/10
    ("twice the proportions", {"phases": [[0, [1.4, 0.6]]]}, [1, 49]),
    ("changed in the run", {"phases": [[0, [0.7, 0.3]], [40, ["1/3", 2]]]}, [1, 49]),
    ("the largest proportions", {"phases": [[0, [0.7, 0.3]], [40, [str(2**2048 - 1), f"1/{2**2048 - 1}"]]]}, [1, 49]),
    ("too large a numerator", {"phases": [[0, [0.7, 0.3]], [40, [str(2**2048), 1]]]}, "phases"),
    ("too large a denominator", {"phases": [[0, [0.7, 0.3]], [40, [f"1/{2**2048}", 1]]]}, "phases"),
    ("a negative proportion", {"phases": [[0, [0.7, 0.3]], [40, [1, -1]]]}, "phases"),
    ("without the entry that has begun", {"position": 50, "phases": [[0, [0.7, 0.3]]]}, "phases"),
    ("a phase that has not begun", {"phases": [[0, [0.7, 0.3]], [150, [1, 1]]]}, "phases"),
    ("no phases", {}, "phases"),
    ("phases that do not ascend", {"phases": [[0, [0.7, 0.3]], [40, [1, 1]], [40, [1, 2]]]}, "phases"),
    ("a first phase after 0", {"phases": [[1, [0.7, 0.3]]]}, "phases"),
    ("three components", {"phases": [[0, [0.7, 0.2, 0.1]]]}, "phases"),
    ("no component", {"phases": [[0, [0, 0]]]}, "phases"),
    ("other lanes at the start of an epoch", {"position": 0, "lanes": 4, "phases": [[0, [0.7, 0.3]]]}, "lanes"),
    ("other lanes at the start of all", {"epoch": 0, "position": 0, "lanes": 4, "phases": [[0, [0.7, 0.3]]]}, [0, 0]),
]  # fmt: skip
_RULE = {"kind": "pack", "capacity": 10, "positions": 4, "oversize": "split", "max_samples": None}
_LENGTHS = {"hash": xxhash.xxh3_128_hexdigest(b"".join(n.to_bytes(4, "little") for n in (7, 2, 12)))}
_GROUPS = {"version": 1, "window": 1, "taken": 3, **_RULE, "lengths": _LENGTHS}
_TAKEN: list[
    tuple[str, int | None, dict[str, Any], Any]
] = [  # steps of an epoch, changes, [window, taken, step, epoch]
    ("it fits", None, {}, [1, 3, 0, None]),
    ("another version", None, {"version": 2}, "version"),
    ("another kind", None, {"kind": "max_tokens"}, "kind"),
    ("another capacity", None, {"capacity": 11}, "capacity"),
    ("another window", None, {"positions": 5}, "positions"),
    ("another way with long samples", None, {"oversize": "error"}, "oversize"),
    ("a limit of samples", None, {"max_samples": 3}, "max_samples"),
    ("other lengths", None, {"lengths": {"hash": "0" * 32}}, "lengths"),
    ("other lengths at a window's start", None, {"taken": 0, "lengths": {"hash": "0" * 32}}, [1, 0, 0, None]),
    ("another capacity at a window's start", None, {"taken": 0, "capacity": 11}, [1, 0, 0, None]),
    ("a key that is not known", None, {"later": 1}, "later"),
    ("a negative number", None, {"taken": -1}, "taken"),
    ("an epoch of a fixed number of steps", 5, {"epoch": 2, "step": 4}, [1, 3, 4, 2]),
    ("more steps than the epoch has", 5, {"epoch": 2, "step": 5}, "step"),
    ("a step, but epochs of samples", None, {"epoch": 2, "step": 4}, "step"),
    ("no step, and epochs of samples", None, {"epoch": 2, "step": 0}, [1, 3, 0, 2]),
]


def text() -> str:
    lists: dict[str, list[dict[str, Any]]] = {
        "states": [
            {"about": about, "run": _RUN, "state": _changed(_STATE, change), "value": value}
            for about, change, value in _STATES
        ],
        "phases": [
            {
                "about": about,
                "run": {**_MIXED, "schedule": _SCHEDULE},
                "state": {"epoch": 1, "position": 49, "order_version": 1, **_MIXED, **change},
                "value": value,
            }
            for about, change, value in _PHASES
        ],
        "groups": [
            {
                "about": about,
                "run": {**_RULE, "lengths": _LENGTHS, "epoch_steps": steps},
                "groups": {**_GROUPS, **change},
                "value": value,
            }
            for about, steps, change, value in _TAKEN
        ],
    }
    parts = ['"order_version": 1', '"groups_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _changed(state: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a state with other values; None takes the key away."""
    return {name: value for name, value in {**state, **change}.items() if value is not None}
