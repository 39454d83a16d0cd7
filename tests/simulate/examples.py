"""A report like those of a real simulation, for tests of what shows it: 2 nodes, 1,000,000 samples, one epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mdsx.order import key
from mdsx.simulate import arguments
from mdsx.simulate.permuted import permuted
from mdsx.simulate.report import Cost, Epoch, Report, Resume, Series, Traffic, Whole

HOSTILE = 's3://x/</script><script>document.title="run"</script><img src=x onerror="document.title=1">&amp;<!--'
_SAMPLES, _SHARD = 1_000_000, 66_670_000
_TRIED = ((8, 2**17, 0.27, 1.1), (8, 2**19, 0.62, 3.0), (64, 2**15, 0.78, 3.3), (64, 2**17, 0.86, 3.9))


def example(**changes: Any) -> Report:
    """Return the report, with some attributes changed."""
    return replace(
        Report(
            settings=_settings(),
            whole=Whole(
                exact=True,
                share=1.0,
                error=0.0,
                bytes=10_074_800_000,
                requests=736,
                ahead=0,
                minimum=10_067_100_000,
                dataset=10_000_000_000,
                cache_needed=1_677_500_000,
                first_batch=0.0605,
                waiting_share=0.000256,
                waited=0.111,
                seconds=2344.0,
            ),
            epochs=[_epoch(0), _epoch(1)],
            series=[_series(0, 1.0), _series(1, 0.97)],
            resume=Resume(
                nodes=3, world_size=6, bytes=6_100_000_000, cold_bytes=7_200_000_000, first_batch=0.07, waited=0.2
            ),
            cost=Cost(requests=0.0003, egress=0.9, per_thousand_requests=0.0004, per_gigabyte=0.09, currency="USD"),
            quality=_quality(),
            advice=_advice(),
            notes=["Not counted: the time to decode samples."],
        ),
        **changes,
    )


def _settings() -> dict[str, Any]:
    return {
        "data": "s3://bucket/corpus",
        "samples": _SAMPLES,
        "shards": 150,
        "bytes": 10_000_000_000,
        "sample_bytes": 10_000,
        "shard_bytes": _SHARD,
        "nodes": 2,
        "ranks_per_node": 2,
        "num_workers": 0,
        "batch_size": 32,
        "global_batch_size": 128,
        "drop_last": True,
        "steps": 7813,
        "seed": 0,
        "shuffle": True,
        "lanes": 8,
        "shuffle_block": 262_144,
        "cache": 4_000_000_000,
        "link": 1_250_000_000,
        "latency": 0.03,
        "step": 0.3,
        "epochs": 1,
        "grouping": None,
    }


def _epoch(node: int) -> Epoch:
    traffic = Traffic(bytes=5_037_400_000, requests=368, shards=75, samples=300, minimum=5_033_550_000, ahead=0)
    return Epoch(
        node=node,
        epoch=0,
        steps=7813,
        traffic=traffic,
        first_batch=0.0605,
        waiting_steps=1,
        waited=0.0605,
        seconds=2344.0,
        peak_cache=3_961_000_000,
    )


def _series(node: int, speed: float) -> Series:
    seconds = [0.06 + 5.86 * place for place in range(401)]
    shards = [min(75, 12 + int(speed * place / 6)) for place in range(401)]
    return Series(
        node=node,
        seconds=seconds,
        downloaded=[count * _SHARD for count in shards],
        cached=[min(count, 59) * _SHARD for count in shards],
        waited=[0.06] * 401,
    )


def _quality() -> dict[str, Any]:
    places = np.arange(0, _SAMPLES, 1000)
    mixed = permuted(key(1, 2), places, _SAMPLES)
    numbers = {
        "mdsx": (places + mixed // 2) % _SAMPLES,
        "exact": mixed,
        "buffer": np.clip(places - mixed // 4, 0, None),
        "py1e": (places + mixed // 3) % _SAMPLES,
        "none": places,
    }
    found = {"mdsx": (39.0, 0.149), "exact": (86.0, 0.001), "buffer": (66.5, 0.025), "py1e": (38.4, 0.038)}
    return {
        "methods": [
            {
                "method": method,
                "held_bytes": 10_000_000_000 if method == "exact" else 2_941_670_000,
                "correlation": found.get(method, (1.0, 1.0))[1],
                "correlation_error": 0.0,
                "distinct": found.get(method, (1.0, 1.0))[0],
                "distinct_p5": found.get(method, (1.0, 1.0))[0] // 1.4,
                "distinct_error": 0.0,
                "distinct_of": "shards",
                "neighbour_distance": 0.98,
                "neighbour_median": 0.96,
                "repeated": 0.5,
                "sampled": _SAMPLES,
            }
            for method in numbers
        ],
        "maps": {method: {"positions": places.tolist(), "numbers": some.tolist()} for method, some in numbers.items()},
        "sampling": "the whole epoch",
    }


def _advice() -> dict[str, Any]:
    curve = [_choice(*tried, enough=False) for tried in _TRIED] + [_choice(64, 2**19, 0.99, 4.98, enough=True)]
    best: Any = {"lanes": 64, "shuffle_block": 2**19, "cache": 4.98e9}
    return {
        "curve": curve,
        "chosen": curve[-1],
        "command": arguments.command(_settings(), **best),
        "python": arguments.python(_settings(), **best),
        "reasons": [
            "64 lanes and this block give 86 shards in a batch.",
            "No two ranks share a shard.",
        ],
        "wanted": {"distinct": 0.9, "repeated": 0.5, "correlation": 0.01},
        "most_repeated": 0.75,
        "exact_distinct": 86.0,
        "tried_shards": 150,
    }


def _choice(lanes: int, block: int, share: float, gigabytes: float, *, enough: bool) -> dict[str, Any]:
    return {
        "lanes": lanes,
        "shuffle_block": block,
        "cache_bytes": round(gigabytes * 1e9),
        "in_use_bytes": round(gigabytes * 8e8),
        "ahead_bytes": round(gigabytes * 2e8),
        "distinct": 86 * share,
        "distinct_share": share,
        "repeated": 1.2 - share / 2,
        "correlation": 0.02,
        "most_correlation": 0.24,
        "enough": enough,
    }
