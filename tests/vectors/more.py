"""Vectors of what a wrong guess would leave unseen in the other files: limits of lanes and components, phases at their
first positions, seeds, splits, names of selections, groups of mixtures without proportions: `more-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. 64-bit numbers are decimal text.
"""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from itertools import pairwise
from typing import Any

import xxhash

from tests.order import reference, reference_groups
from tests.order.reference import G, W, key, mix64
from tests.order.reference_groups import Rule

_MIXTURES: list[dict[str, Any]] = [
    # 2048 samples are read lane by lane, 2047 are not
    {"counts": [[2048], [1000, 1047]], "seed": 3, "lanes": 2, "shuffle_block": 64, "phases": [[0, [1, 1]]]},
    # lanes of 1025 and 1024 samples, over several epochs of each
    {"counts": [[2000, 49], [3]], "seed": 4, "lanes": 2, "shuffle_block": 64, "phases": [[0, [3, 1]]]},
    # more lanes than positions in a round: M is 1
    {"counts": [[7], [90, 5]], "seed": 9, "lanes": 300, "shuffle_block": 900, "phases": [[0, [1, 3]], [301, [1, 1]]]},
    # 129 * 2 > 256, so M is 1; phases of one position, and in the middle of a round of a lane
    {
        "counts": [[40], [30]],
        "seed": 1,
        "lanes": 129,
        "shuffle_block": 1,
        "phases": [[0, [1, 0]], [7, [0, 1]], [8, [1, 1]]],
    },
    {
        "counts": [[40], [30]],
        "seed": 5,
        "lanes": 3,
        "shuffle_block": 8,
        "phases": [[0, [1, 1]], [100, [0, 1]], [205, [3, 1]]],
    },
]
_UNSHUFFLED = [
    {"samples": 11, "lanes": 4, "start": 2, "stop": 11, "world": 2},
    {"samples": 8, "lanes": 8, "start": 0, "stop": 8, "world": 3},
]
_STEPS: list[dict[str, Any]] = [
    {"lanes": 4, "world": 2, "step": "1133330011"},  # lanes 1 and 3 have more groups than places
    {"lanes": 3, "world": 3, "step": "222000"},
    {"lanes": 3, "world": 2, "step": "21020"},
    {"lanes": 5, "world": 4, "step": "441"},  # lanes without a home
]
_HASHES: list[tuple[str, str]] = [  # type, the little-endian bytes of the value
    ("int32", "feffffff"),
    ("int8?", "80"),
    ("uint8", "ff"),
    ("float32", "010080ff"),  # NaN with a payload
    ("float64", "ffffffffffffffff"),
    ("float16", "01fe"),
    ("float64", "0000000000000080"),
    ("bfloat16", "c03f"),
    ("bfloat16", "81ff"),
    ("bfloat16", "0080"),
    ("float16", "0100"),
    ("int32[2]", "ffffffff00000080"),
    ("bfloat16[2]", "c03fc1ff"),
]
_SEEDS = [(0, 0, 0), (7, 3, 10**12), (2**64 - 1, 2**40, 5), (1, 0, 2**62 - 1)]
_SPLITS: list[dict[str, Any]] = [
    {"seed": 0, "shares": [0.9, 0.1]},  # the sum is 1 within 2^-40, though not in binary64
    {"seed": 7, "shares": [0.7, 0.2, 0.1]},
    {"seed": 7, "shares": ["1/3", "1/3"]},
    {"seed": 2**63, "shares": [0.5, 0, 0.4999999999999]},  # within 2^-40 of 1
    {"seed": 2**63, "shares": [0.5, 0.499999999998]},  # not within 2^-40
]
_HASHED = [0, 1, 2**64 - 1, 2**63, *range(2, 20)]
_DATASET = "a86040a30d08f39f26138182fab4dfc0"
_SELECTIONS: list[tuple[int, list[list[Any]]]] = [
    (1300, [[0, 1300]]),
    (1300, [[3, 9], [1, 2]]),
    (1300, [[3, 9], [0, 6]]),
    (1300, [[3, 900], [100, 400], [5, 5]]),
    (1300, [[3, 900], [100, 400], [5, 6]]),
    (1300, [[0, 600], [0.0, 0.5, 7]]),
    (1300, [[0.0, 0.5, 7], [0.0, 0.25, 8]]),
]
_SELECTED: list[dict[str, Any]] = [
    {"samples": 40, "steps": [[5, 30], [0.0, 0.5, 7]]},
    {"samples": 40, "steps": [[0.0, 0.5, 7], [2, 9]]},
    {"samples": 40, "steps": [[0.0, 0.75, 7], [3, 20], [0.25, 1.0, 7], [0.5, 1.0, 2**64 - 1]]},
]
_NAMES = [
    ["shard.00000.mdsx", "shard.00001.mdsx", "shard.00002.mdsx"],
    ["shard.99999.mdsx", "shard.100000.mdsx", "shard.100002.mdsx"],
    ["a/00001.00007.x", "a/00001.00008.x", "a/00002.00009.x"],
    ["s.00001", "s.00002", "repaired.s.00003", "s.00004"],
    ["s.000001", "s.000002"],
    ["s.000099999", "s.000100000"],
]
_LENGTHS = [number * number * 5 % 31 for number in range(20)]
_GROUPS: list[dict[str, Any]] = [
    {"counts": [[4, 6], [10]], "seed": 7, "lanes": 3, "shuffle_block": 9, "shuffle": True, "epoch": 1,
     "epoch_samples": 20, "rule": Rule("pack", 30, 2)},
    {"counts": [[4, 6], [10]], "seed": 7, "lanes": 2, "shuffle_block": 9, "shuffle": True, "epoch": 2,
     "epoch_samples": 13, "rule": Rule("max_tokens", 40, 3)},
    {"counts": [[4, 6], [10]], "seed": 0, "lanes": 1, "shuffle_block": 9, "shuffle": False, "epoch": 0,
     "epoch_samples": 20, "rule": Rule("pack", 16, 7, "split")},
]  # fmt: skip


def text() -> str:
    lists = {
        "phases": list(map(_mixture, _MIXTURES)),
        "unshuffled_ranks": [_unshuffled(**given) for given in _UNSHUFFLED],
        "rank_groups": [_rank_groups(**given) for given in _STEPS],
        "value_hash": [
            {"type": kind, "bytes": data, "value": f"{_value_hash(kind, data):016x}"} for kind, data in _HASHES
        ],
        "seed": [{"seed": str(s), "epoch": e, "position": q, "value": str(key(s, 8, e, q))} for s, e, q in _SEEDS],
        "split": [_split(**given) for given in _SPLITS],
        "selection_fingerprint": [_selection(size, steps) for size, steps in _SELECTIONS],
        "selection": [{**given, "steps": _given(given["steps"]), "value": _selected(**given)} for given in _SELECTED],
        "name_ranges": [{"names": names, "value": _ranges(names)} for names in _NAMES],
        "epochs": list(map(_epoch, _GROUPS)),
    }
    parts = ['"order_version": 1', '"groups_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _mixture(options: dict[str, Any]) -> dict[str, Any]:
    (_, weights), *later = options["phases"]
    made = reference.Mixture(
        options["counts"], weights, options["seed"], options["lanes"], options["shuffle_block"], later
    )
    stop = 9000 if options["lanes"] == 2 else 700
    found = made.positions(stop)
    near = [start + step for start, _ in options["phases"] for step in (-1, 0, 1, 2)]
    positions = sorted({p for p in [*range(40), *near, *range(0, stop, 101), *range(stop - 12, stop)] if 0 <= p < stop})
    return {**options, "seed": str(options["seed"]), "positions": positions, "value": [found[p] for p in positions]}


def _unshuffled(samples: int, lanes: int, start: int, stop: int, world: int) -> dict[str, Any]:
    given = {"samples": samples, "lanes": lanes, "start": start, "stop": stop, "world": world}
    return {**given, "value": [reference.rank_batch(start, stop, 1, rank, world) for rank in range(world)]}


def _rank_groups(lanes: int, world: int, step: str) -> dict[str, Any]:
    groups = [(int(lane), number) for number, lane in enumerate(step)]
    placed: list[Any] = reference_groups.places(groups, lanes)  # type: ignore[arg-type]  # a number stands for the items
    cuts = [rank * len(groups) // world for rank in range(world + 1)]
    return {
        "lanes": lanes,
        "world": world,
        "step": groups,
        "value": [placed[a:b] for a, b in pairwise(cuts)],
    }


def _value_hash(kind: str, data: str) -> int:
    base, *dims = kind.rstrip("?").rstrip("]").split("[")
    item = {"int8": "b", "uint8": "B", "int32": "i", "float16": "e", "bfloat16": "H", "float32": "f", "float64": "d"}[
        base
    ]
    numbers = list(struct.unpack(f"<{dims[0] if dims else ''}{item}", bytes.fromhex(data)))
    found = [_number_hash(base, number) for number in numbers]
    return int(xxhash.xxh3_64_intdigest(struct.pack(f"<{len(found)}Q", *found))) if dims else found[0]


def _number_hash(base: str, number: Any) -> int:
    if base == "bfloat16":
        (number,) = struct.unpack("<f", struct.pack("<I", number << 16))
    if "float" not in base:
        return int(number) % W
    if number != number:  # NaN
        return 0x7FF8 << 48
    return int.from_bytes(struct.pack(">d", number or 0.0), "big")


def _split(seed: int, shares: list[float | str]) -> dict[str, Any]:
    edges = [Fraction(0)]
    for share in shares:
        edges.append(edges[-1] + Fraction(share))
    edges = [Fraction(1) if abs(edge - 1) < Fraction(1, 2**40) else edge for edge in edges]
    bounds = [int(W * edge) for edge in edges]
    points = [mix64((key(seed, 6) + (h + 1) * G) % W) for h in _HASHED]
    share_of = [next((k for k in range(len(shares)) if bounds[k] <= x < bounds[k + 1]), None) for x in points]
    hashed = list(map(str, _HASHED))
    return {"seed": str(seed), "shares": shares, "bounds": list(map(str, bounds)), "h": hashed, "value": share_of}


def _selection(size: int, steps: list[list[Any]]) -> dict[str, Any]:
    texts: list[str] = []
    for start, stop, *seed in steps:
        if seed:
            texts.append(f"{int(W * Fraction(start)):016x}-{int(W * Fraction(stop)):016x}@{seed[0]}")
            continue
        if start == stop:
            texts = ["0:0"]
        elif texts and ":" in texts[-1]:
            first = int(texts.pop().split(":")[0])
            texts.append(f"{first + start}:{first + stop}")
        elif (start, stop) != (0, size):
            texts.append(f"{start}:{stop}")
    line = " ".join(texts)
    value = xxhash.xxh3_128_hexdigest(f"{_DATASET}\n{line}".encode()) if line else _DATASET
    return {"fingerprint": _DATASET, "samples": size, "steps": _given(steps), "text": line, "value": value}


def _given(steps: list[list[Any]]) -> list[dict[str, Any]]:
    names = ("start", "stop", "seed")
    return [{name: str(x) if name == "seed" else x for name, x in zip(names, step, strict=False)} for step in steps]


def _selected(samples: int, steps: list[list[Any]]) -> list[int]:
    chosen = list(range(samples))
    for start, stop, *seed in steps:
        if seed:  # by the numbers in the dataset
            low, high = Fraction(start), Fraction(stop)
            chosen = [number for number in chosen if reference.in_selection(number, seed[0], low, high)]
        else:
            chosen = chosen[start:stop]
    return chosen


def _ranges(names: list[str]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for name in names:
        at = end = len(name)
        while not (name[at:end].isdigit() and end - at >= 5 and (at == 0 or not name[at - 1].isdigit())):
            at -= 1
            if at < 0 or not name[at:end].isdigit():
                end = (end if at >= 0 else 0) - 1
                at = end
        digits = name[at:end]
        while len(digits) > 5 and digits[0] == "0":  # a number is padded to five digits: further zeros are the prefix's
            at, digits = at + 1, digits[1:]
        prefix, suffix, number = name[:at], name[end:], int(digits)
        last = found[-1] if found else None
        if last and last[:2] == [prefix, suffix] and last[2] + last[3] == number:
            last[3] += 1
        else:
            found.append([prefix, suffix, number, 1])
    return found


def _epoch(options: dict[str, Any]) -> dict[str, Any]:
    given = dict(options)
    rule: Rule = given.pop("rule")
    seed, lanes, epoch, size = (given[name] for name in ("seed", "lanes", "epoch", "epoch_samples"))
    counts = [count for component in given["counts"] for count in component]
    firsts = [sum(counts[:shard]) for shard in range(len(counts))]
    n, start, stop = sum(counts), epoch * size, (epoch + 1) * size
    samples: list[int] = []
    for of_order in range(-(-stop // n)):
        places = reference.whole_order(counts, seed, of_order, lanes, given["shuffle_block"], given["shuffle"])
        samples += [firsts[shard] + sample for shard, sample in places]
    value = [
        reference_groups.window_groups(
            rule, positions, lambda p: _LENGTHS[samples[p]], lambda p: p % n % lanes,
            seed=seed, epoch=epoch, window=number, lanes=lanes, shuffle=given["shuffle"],
        )
        for number, positions in enumerate(reference_groups.epoch_windows(start, stop, n, rule.window * lanes))
    ]  # fmt: skip
    return {**given, "seed": str(seed), "lengths": _LENGTHS, **rule._asdict(), "value": value}
