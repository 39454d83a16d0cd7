"""Vectors of runs whose data change: `changes-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. Seeds are decimal text.
"""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from typing import Any

import xxhash

from tests.order import reference

Pair = tuple[str, str]  # name, fingerprint

_A, _B, _C = (32 * digit for digit in "abc")
_MATCHES: list[tuple[list[Pair], list[Pair]]] = [
    ([("web", _A), ("code", _B)], [("code", _B), ("web", _A)]),
    ([("web", _A), ("code", _B)], [("math", _C), ("pages", _A)]),  # one is renamed, one removed, one new
    ([("x", _A), ("y", _A), ("z", _B)], [("y", _A), ("z", _A), ("x", _B)]),  # equal ones: by name, then by order
    ([("x", _A), ("y", _A)], [("p", _A), ("q", _A), ("r", _A)]),
    ([], [("web", _A)]),
]
_CHANGES: list[dict[str, Any]] = [
    {  # code is replaced by math, and comes back
        "counts": [[40, 60], [30], [17, 20]],
        "seed": 7,
        "lanes": 4,
        "shuffle_block": 16,
        "run": None,
        "begins_with": [[0, ["2", "1"]]],
        "changes": [[61, ["1", "0", "1/2"]], [150, ["1", "1", "1"]]],
        "exclude": [[0, 61, [3, 55, 99, 0]], [1, 150, [29]]],
    },
    {  # lane by lane, and the change is within a round
        "counts": [[1500, 700], [2049], [3]],
        "seed": 2**64 - 1,
        "lanes": 2,
        "shuffle_block": 100,
        "run": None,
        "begins_with": [[0, ["1"]]],
        "changes": [[1000, ["1", "3"]], [1001, ["0", "1", "1"]], [1700, ["1", "1", "0"]]],
        "exclude": [],
    },
    {  # in stretches: a change holds from the next one on
        "counts": [[50], [50], [50]],
        "seed": 3,
        "lanes": 4,
        "shuffle_block": 8,
        "run": 24,
        "begins_with": [[0, ["1", "1"]]],
        "changes": [[100, ["0", "1", "2"]]],
        "exclude": [],
    },
]
_SHARES: list[dict[str, Any]] = [
    {"proportions": ["1/2", "3/10", "1/5"], "samples": [3000, 2000, 900], "sums": [1_900_000, 7_654_321, 88_000_000]},
    {"proportions": ["3602879701896397/36028797018963968", "1"], "samples": [10**12, 7], "sums": [10**15, 13]},
    {"proportions": ["0", "1"], "samples": [5, 7], "sums": [0, 7]},
]


def matched(old: list[Pair], given: list[Pair]) -> list[int | None]:
    """Return which of `given` each old component is."""
    places: list[int | None] = [None] * len(old)
    for names in (True, False):
        for number, (name, fingerprint) in enumerate(old):
            for place, other in enumerate(given):
                same = other == (name, fingerprint) if names else other[1] == fingerprint
                if places[number] is None and place not in places and same:
                    places[number] = place
    return places


def hash_of(numbers: list[int]) -> str:
    return xxhash.xxh3_128_hexdigest(b"".join(struct.pack("<Q", number) for number in numbers))


def _changed(case: dict[str, Any]) -> dict[str, Any]:
    many = len(case["counts"])
    phases = [
        (at, [*map(Fraction, weights), *[Fraction(0)] * (many - len(weights))])
        for at, weights in case["begins_with"] + case["changes"]
    ]
    (_, first), *later = phases
    mixture = reference.Mixture(
        case["counts"], first, case["seed"], case["lanes"], case["shuffle_block"], later, case["run"]
    )
    places = mixture.positions(2000)
    left_out = []
    for tick, (component, shard, sample) in enumerate(places):
        number = sum(case["counts"][component][:shard]) + sample
        if any(component == each[0] and tick >= each[1] and number in each[2] for each in case["exclude"]):
            left_out.append(tick)
    ticks = sorted({*range(40), *(at + step for at, _ in case["changes"] for step in range(-20, 30)), *left_out[:20]})
    return {
        **case,
        "seed": str(case["seed"]),
        "ticks": ticks,
        "value": [list(places[tick]) for tick in ticks],
        "left_out": [tick for tick in ticks if tick in left_out],
        "hashes": [hash_of(numbers) for _, _, numbers in case["exclude"]],
    }


def text() -> str:
    """Return the file."""
    lists: dict[str, list[dict[str, Any]]] = {
        "matched": [{"old": old, "given": given, "value": matched(old, given)} for old, given in _MATCHES],
        "fingerprints": [
            {"listed": listed, "value": xxhash.xxh3_128_hexdigest("\n".join(["mixture", *listed]).encode())}
            for listed in ([_A], [_A, _B, _C], [_A, _A])
        ],
        "runs": [_changed(case) for case in _CHANGES],
        "shares_of_tokens": [
            {
                **case,
                "value": [
                    str(Fraction(share) * samples / total) if total else "0"
                    for share, samples, total in zip(*case.values(), strict=True)
                ],
            }
            for case in _SHARES
        ],
    }
    parts = ['"order_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"
