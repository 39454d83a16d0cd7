"""Vectors of stratified splits: `strata-v1.json`.

Computed by a naive implementation, which shares no code with mdsx. 64-bit numbers are decimal text.
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tests.order.reference import G, W, key, mix64

_LABELS: list[int | None] = [None if i % 7 == 3 else i * i % 5 for i in range(60)]
_SPLITS: list[dict[str, Any]] = [
    {"seed": 0, "shares": [0.9, 0.1], "samples": list(enumerate(_LABELS))},
    {"seed": 7, "shares": [0.7, 0.15], "samples": list(enumerate(_LABELS))},  # some samples are in no share
    {"seed": 7, "shares": ["1/3", "1/3", "1/3"], "samples": list(enumerate(_LABELS))},
    {"seed": 2**64 - 1, "shares": [0.5, 0, 0.4999999999999], "samples": list(enumerate(_LABELS))},  # 2^-40 of 1
    {"seed": 3, "shares": [0.25, 0.25, 0.5], "samples": [(i, 2**64 - 1 - i) for i in range(40)]},  # all alone
    {"seed": 3, "shares": [0.8, 0.2], "samples": [(i, 0 if i % 2 else None) for i in range(30)]},  # null is no 0
    {"seed": 1, "shares": [0.5, 0.5], "samples": [(10**12 + 3 * i, 2**63 + i % 2) for i in range(25)]},  # a selection
    {"seed": 1, "shares": ["1/7", "2/7", "3/7"], "samples": [(i, i // 20) for i in range(60)]},
    {"seed": 1, "shares": [1], "samples": [(5, 1), (9, None)]},
    {"seed": 1, "shares": [0.5, 0.5], "samples": []},
]


def text() -> str:
    splits = ",\n".join(json.dumps(_split(**given)) for given in _SPLITS)
    return f'{{\n"order_version": 1,\n"stratified_split": [\n{splits}\n]\n}}\n'


def _split(seed: int, shares: list[float | str], samples: list[tuple[int, int | None]]) -> dict[str, Any]:
    edges = [Fraction(0)]
    for share in shares:
        edges.append(edges[-1] + Fraction(share))
    edges = [Fraction(1) if abs(edge - 1) < Fraction(1, 2**40) else edge for edge in edges]
    proportions = [high - low for low, high in pairwise([*edges, Fraction(1)])]
    owed, share_of = [Fraction(0)] * len(proportions), dict[int, int]()
    for stratum in sorted({h for _, h in samples}, key=lambda h: -1 if h is None else h):
        numbers = [i for i, h in samples if h == stratum]
        numbers.sort(key=lambda i: mix64((key(seed, 6) + (i + 1) * G) % W))
        exact = [proportion * len(numbers) for proportion in proportions]
        counts = [amount.numerator // amount.denominator for amount in exact]
        owed = [debt + amount - count for debt, amount, count in zip(owed, exact, counts, strict=True)]
        able = [k for k, amount in enumerate(exact) if amount.denominator > 1]
        while sum(counts) < len(numbers):
            best = max(able, key=lambda k: (owed[k], -k))
            able.remove(best)
            counts[best] += 1
            owed[best] -= 1
        places = iter(numbers)
        for k, count in enumerate(counts):
            share_of |= {next(places): k for _ in range(count)}
    return {
        "seed": str(seed),
        "shares": shares,
        "samples": [[i, None if h is None else str(h)] for i, h in samples],
        "value": [share_of[i] if share_of[i] < len(shares) else None for i, _ in samples],
    }
