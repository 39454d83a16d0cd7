"""Vectors of runs: default blocks, weights, fractions, fingerprints, ends, epochs of another length, states:
`runs-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. Seeds and bounds are decimal text.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import xxhash

from tests.order import reference

_BLOCKS = [(0, 0), (0, 3), (1, 1), (20, 5), (1001, 10), (10**6, 100), (10**12, 1000), (3, 7)]
_WEIGHTS: list[list[int | float | str]] = [
    [1, 1, 1],
    [0.1, 0.3],  # the binary64 numbers, not the decimal ones
    ["1/10", "3/10"],
    [2**53, 2**53],
    [str(2**53 + 1), 2**53],
    [2**53 + 1, 2**53],  # as a JSON number it is 2^53
    [1e-300, 1.5],
    [0, 1e22],
    ["1/3", 0, 0.5],
]
_FRACTIONS = [(0.0, 1.0), (0.1, 0.9), (0.3, 0.3), (1e-30, 1.0), (0.5, 0.9999999999999999)]
_DATASET, _OTHER = "a86040a30d08f39f26138182fab4dfc0", "00112233445566778899aabbccddeeff"
_SELECTIONS: list[list[list[Any]]] = [
    [[0, 10]],
    [[0.0, 0.9, 7]],
    [[0.9, 1.0, 2**64 - 1]],
    [[10, 1000], [0.25, 0.5, 0]],
]
_LISTS: list[tuple[int, list[int]]] = [
    (5, [0, 1, 2, 3, 4]),
    (5, []),
    (5, [4]),
    (9, [2, 3, 4]),
    (9, [2, 4]),
    (2**40, [0, 2**33, 2**40 - 1]),
]
_VALUES: list[tuple[str, Any]] = [
    ("int8", -1),
    ("uint64", 2**64 - 1),
    ("bool", True),
    ("int64?", None),
    ("float32", "0.1"),  # the binary32 number
    ("float64", "0.1"),
    ("float16", "-0.0"),
    ("float32?", "nan"),
    ("str", "\u00e9"),
    ("str?", None),
    ("bytes", "abc"),
    ("int16[2]", [-1, 300]),
    ("float32[*]", ["0.5", "-0.0"]),
]
_ENDS: list[dict[str, Any]] = [
    {"samples": 10, "lanes": 2, "batch": 4, "world": 2, "drop_last": True},
    {"samples": 10, "lanes": 2, "batch": 4, "world": 2, "drop_last": False},
    {"samples": 9, "lanes": 4, "batch": 4, "world": 4, "drop_last": False},  # a last batch of 1 for 4 ranks
    {"samples": 8, "lanes": 3, "batch": 4, "world": 2, "drop_last": True},
    {"samples": 5, "lanes": 1, "batch": 8, "world": 3, "drop_last": False},
]
_EPOCHS: list[dict[str, Any]] = [
    {"counts": [4, 0, 7, 3, 6], "seed": 7, "lanes": 2, "shuffle_block": 6, "epoch_samples": 13, "batch": 5, "world": 2},
    {"counts": [4, 0, 7, 3, 6], "seed": 7, "lanes": 3, "shuffle_block": 6, "epoch_samples": 45, "batch": 9, "world": 3},
]
_UNSHUFFLED: list[dict[str, Any]] = [{"counts": [[2, 1], [0], [3]]}]
_RUN = {
    "seed": 2**64 - 1,
    "lanes": 8,
    "shuffle_block": 262144,
    "shuffle": True,
    "fingerprint": _DATASET,
    "epoch_samples": 100,
}
_STATES: list[tuple[dict[str, Any], int, int, list[list[Any]]]] = [
    (_RUN, 0, 0, []),
    (_RUN, 3, 96, []),
    ({**_RUN, "lanes": 1, "shuffle": False, "seed": 0}, 1, 100, []),
    (_RUN, 2**40, 5, []),
    (_RUN, 1, 49, [[0, ["7/10", "3/10"]], [150, [1, 1]]]),
    (_RUN, 1, 50, [[0, [0.7, 0.3]], [150, [1, 1]], [151, ["1/3", 2]]]),
    (_RUN, 2, 0, [[0, [str(2**53), str(2**53 + 1)]], [100, [0.5, 1e22]]]),
]


def text() -> str:
    lists: dict[str, list[dict[str, Any]]] = {
        "default_block": [{"samples": n, "shards": s, "value": _block(n, s)} for n, s in _BLOCKS],
        "weights": [{"weights": weights, "bounds": _bounds(weights)} for weights in _WEIGHTS],
        "fractions": [
            {"start": start, "stop": stop, "bounds": [str(int(2**64 * Fraction(x))) for x in (start, stop)]}
            for start, stop in _FRACTIONS
        ],
        "selection_fingerprint": [
            {"fingerprint": _DATASET, "steps": _steps(steps), "text": _selection(steps), "value": _selected(steps)}
            for steps in _SELECTIONS
        ],
        "list_step": [
            {"samples": samples, "numbers": numbers, "value": _list_step(samples, numbers)}
            for samples, numbers in _LISTS
        ],
        "value_hash": [
            {"type": kind, "given": given, "value": f"{_value_hash(kind, given):016x}"} for kind, given in _VALUES
        ],
        "zip_fingerprint": [
            {"fingerprints": list(given), "value": _hash("\n".join(["zip", *given]))}
            for given in ([_DATASET, _OTHER], [_OTHER, _DATASET, _OTHER])
        ],
        "mixture_fingerprint": [
            {"fingerprints": list(given), "value": _hash("\n".join(["mixture", *given]))}
            for given in ([_DATASET], [_DATASET, _OTHER], [_OTHER, _DATASET])
        ],
        "unshuffled_mixture": [{**options, "value": _unshuffled(**options)} for options in _UNSHUFFLED],
        "ends": [{**options, "value": _ends(**options)} for options in _ENDS],
        "epochs": [{**options, "seed": str(options["seed"]), "value": _epochs(**options)} for options in _EPOCHS],
        "state": [
            {**run, "seed": str(run["seed"]), "phases": phases, "value": _state(run, epoch, position, phases)}
            for run, epoch, position, phases in _STATES
        ],
    }
    parts = ['"order_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _block(samples: int, shards: int) -> int:
    return max(1, min(262144, 64 * reference.ceil_div(samples, shards))) if samples else 1


def exact(weight: int | float | str) -> Fraction:
    """Return a weight of a state exactly: text as it is, a number as the nearest binary64."""
    return Fraction(weight) if isinstance(weight, str) else Fraction(float(weight))


def _bounds(weights: Sequence[int | float | str]) -> list[str]:
    return [str(bound) for bound in reference.Mixture.bounds_of(list(map(exact, weights)))]


def _steps(steps: list[list[Any]]) -> list[dict[str, Any]]:
    names = ("start", "stop", "seed")
    return [{name: str(x) if name == "seed" else x for name, x in zip(names, step, strict=False)} for step in steps]


def _selection(steps: list[list[Any]]) -> str:
    texts = []
    for start, stop, *seed in steps:
        low, high = (int(2**64 * Fraction(x)) for x in (start, stop))
        texts.append(f"{low:016x}-{high:016x}@{seed[0]}" if seed else f"{start}:{stop}")
    return " ".join(texts)


def _selected(steps: list[list[Any]]) -> str:
    return _hash(f"{_DATASET}\n{_selection(steps)}")


def _list_step(samples: int, numbers: list[int]) -> str:
    if len(numbers) == samples:
        return ""
    first, stop = (numbers[0], numbers[-1] + 1) if numbers else (0, 0)
    if stop - first == len(numbers):
        return f"{first}:{stop}"
    return f"#{xxhash.xxh3_128_hexdigest(struct.pack(f'<{len(numbers)}Q', *numbers))}"


def _value_hash(kind: str, given: Any) -> int:
    if isinstance(given, list):
        items = [_value_hash(kind.split("[")[0], item) for item in given]
        return int(xxhash.xxh3_64_intdigest(struct.pack(f"<{len(items)}Q", *items)))
    if kind.startswith(("str", "bytes")):
        return int(xxhash.xxh3_64_intdigest((given or "").encode()))
    if not kind.startswith("float"):
        return int(given or 0) % 2**64
    code = {"16": "e", "32": "f", "64": "d"}[kind.removeprefix("float").rstrip("?")]
    (number,) = struct.unpack(f"<{code}", struct.pack(f"<{code}", float(given)))
    if number != number:  # NaN
        return 0x7FF8 << 48
    return int.from_bytes(struct.pack(">d", number or 0.0), "big")


def _hash(given: str) -> str:
    return str(xxhash.xxh3_128_hexdigest(given.encode()))


def _unshuffled(counts: list[list[int]]) -> list[list[int]]:
    return [[i, s, n] for i, shards in enumerate(counts) for s, count in enumerate(shards) for n in range(count)]


def _ends(samples: int, lanes: int, batch: int, world: int, drop_last: bool) -> list[dict[str, Any]]:
    """Return, for each batch of epoch 0, what each rank reads, and the run's position after it."""
    found, stop = [], 0
    while stop < samples and not (drop_last and stop + batch > samples):
        start, stop = stop, min(stop + batch, samples)
        over = stop == samples or (drop_last and stop + batch > samples)
        ranks = [reference.rank_batch(start, stop, lanes, rank, world) for rank in range(world)]
        found.append({"ranks": ranks, "after": [1, 0] if over else [0, stop]})
    return found


def _epochs(
    counts: list[int], seed: int, lanes: int, shuffle_block: int, epoch_samples: int, batch: int, world: int
) -> list[list[list[list[int]]]]:
    """Return what each rank reads, as [shard, sample], in the first batches of the run's epochs 0 to 2."""
    samples, found = sum(counts), []
    orders: dict[int, list[reference.Place]] = {}
    for epoch in range(3):
        for q in range(0, epoch_samples, batch):
            start = epoch * epoch_samples + q
            stop = epoch * epoch_samples + min(q + batch, epoch_samples)
            base = start // samples * samples  # the epoch of the dataset in which the batch begins
            ranks = []
            for rank in range(world):
                places = []
                for p in reference.rank_batch(start - base, stop - base, lanes, rank, world):
                    number, place = divmod(base + p, samples)
                    if number not in orders:
                        orders[number] = reference.whole_order(counts, seed, number, lanes, shuffle_block)
                    places.append(list(orders[number][place]))
                ranks.append(places)
            found.append(ranks)
    return found


def _state(run: dict[str, Any], epoch: int, position: int, phases: list[list[Any]]) -> dict[str, Any]:
    state = {"epoch": epoch, "position": position, "order_version": 1, **run, "seed": str(run["seed"])}
    started = [phase for phase in phases if phase[0] <= epoch * run["epoch_samples"] + position]
    if started:
        state["phases"] = [[start, list(map(_weight, weights))] for start, weights in started]
    return state


def _weight(weight: int | float | str) -> int | float | str:
    """Return the form of a weight in a state: a number if binary64 has it, otherwise text."""
    value = exact(weight)
    if Fraction(float(value)) != value:
        return f"{value.numerator}/{value.denominator}" if value.denominator > 1 else str(value.numerator)
    return value.numerator if value.denominator == 1 else float(value)
