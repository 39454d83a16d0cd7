"""Vectors of what `groups-v1.json` leaves out: samples that are truncated or split, epochs of another length, mixtures,
and default windows: `group-epochs-v1.json`.

Computed by the naive implementation of the tests, which shares no code with mdsx. Seeds are decimal text.
"""

from __future__ import annotations

import json
from typing import Any

from tests.order import reference, reference_groups
from tests.order.reference_groups import Rule

_ORDER: dict[str, Any] = {"counts": [11, 0, 18], "seed": 7, "lanes": 3, "shuffle_block": 9, "shuffle": True}
_MIXTURE: dict[str, Any] = {"counts": [[11, 6], [12]], "weights": [2, 1], "seed": 7, "lanes": 3, "shuffle_block": 9}
_LENGTHS = [number * number * 7 % 43 for number in range(29)]
_EPOCHS: list[dict[str, Any]] = [
    {**_ORDER, "epoch": 0, "epoch_samples": 29, "rule": Rule("pack", 16, 4, "split")},
    {**_ORDER, "epoch": 1, "epoch_samples": 29, "rule": Rule("pack", 14, 100, "split")},
    {**_ORDER, "epoch": 2, "epoch_samples": 29, "rule": Rule("pack", 25, 2, "truncate")},
    {**_ORDER, "epoch": 1, "epoch_samples": 29, "rule": Rule("max_tokens", 30, 4, "truncate", 3)},
    {
        **_ORDER,
        "epoch": 3,
        "epoch_samples": 17,
        "rule": Rule("pack", 42, 3),
    },  # from an epoch of the dataset to the next
    {**_ORDER, "epoch": 1, "epoch_samples": 71, "rule": Rule("max_tokens", 90, 5)},
    {**_ORDER, "shuffle": False, "lanes": 1, "epoch": 0, "epoch_samples": 29, "rule": Rule("pack", 16, 9, "split")},
    {**_ORDER, "shuffle": False, "lanes": 1, "epoch": 0, "epoch_samples": 29, "rule": Rule("max_tokens", 64, 9)},
    {**_MIXTURE, "epoch": 0, "epoch_samples": 29, "rule": Rule("pack", 42, 4)},
    {**_MIXTURE, "epoch": 2, "epoch_samples": 20, "rule": Rule("pack", 16, 4, "split")},
    {**_MIXTURE, "epoch": 1, "epoch_samples": 50, "rule": Rule("max_tokens", 64, 6, "error", 4)},
]
_WINDOWS = [(4096, None), (4096, 989.25), (16, 1.0), (17, 1.0), (65536, 989.25), (131072, 989.25), (131072, 0.0)]


def text() -> str:
    windows = [
        {"capacity": capacity, "mean": mean, "value": reference_groups.default_window(capacity, mean)}
        for capacity, mean in _WINDOWS
    ]
    lists = {"epochs": list(map(epoch_of, _EPOCHS)), "default_window": windows}
    parts = ['"groups_version": 1']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def epoch_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return a vector of an epoch. `options`: the inputs, `rule`, and `lengths` if they are not the usual 29."""
    given = dict(options)
    rule: Rule = given.pop("rule")
    lengths: list[int] = given.pop("lengths", _LENGTHS)
    seed, lanes, epoch, size = (given[name] for name in ("seed", "lanes", "epoch", "epoch_samples"))
    n = len(lengths)
    start, stop = epoch * size, (epoch + 1) * size
    if "weights" in given:
        firsts = [[0, 11], [17]]
        mixture = reference.Mixture(given["counts"], given["weights"], seed, lanes, given["shuffle_block"])
        samples = [firsts[component][shard] + sample for component, shard, sample in mixture.positions(stop)]
    else:
        firsts_of_shards, samples = [0, 11, 11], []
        for of_order in range(-(-stop // n)):
            places = reference.whole_order(
                given["counts"], seed, of_order, lanes, given["shuffle_block"], given["shuffle"]
            )
            samples += [firsts_of_shards[shard] + sample for shard, sample in places]
    cut = None if "weights" in given else n
    value = [
        reference_groups.window_groups(
            rule,
            positions,
            lambda p: lengths[samples[p]],
            lambda p: (p % cut if cut else p) % lanes,
            seed=seed,
            epoch=epoch,
            window=number,
            lanes=lanes,
            shuffle=given.get("shuffle", True),
        )
        for number, positions in enumerate(reference_groups.epoch_windows(start, stop, cut, rule.window * lanes))
    ]
    return {**given, "seed": str(seed), "lengths": lengths, **rule._asdict(), "value": value}
