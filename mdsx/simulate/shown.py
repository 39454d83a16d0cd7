"""The texts and tables of the page, made from a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mdsx.base.sizes import format_count
from mdsx.simulate import words
from mdsx.simulate.arguments import command, python
from mdsx.simulate.report import Report
from mdsx.simulate.settings import MADE_UP
from mdsx.simulate.verdict import findings, headline, kinds

_NAMES = {
    "mdsx": "mdsx, as simulated",
    "exact": "exact shuffle",
    "buffer": "shuffle buffer",
    "py1e": "py1e of MosaicML",
    "none": "no shuffle",
}
_SIZES = ("bytes", "sample_bytes", "shard_bytes", "cache")
_MEANINGS = {
    "data": "The simulated data; made up if no dataset was given.",
    "samples": "Samples in an epoch.",
    "shards": "Files that the samples are stored in. A shard is downloaded and evicted as a whole.",
    "bytes": "Stored bytes of all shards.",
    "sample_bytes": "Mean size of a sample.",
    "shard_bytes": "Stored bytes of the largest shard.",
    "nodes": "Machines.",
    "ranks_per_node": "Training processes on each machine.",
    "num_workers": "Worker processes of each rank's loader; 0: a thread.",
    "batch_size": "Samples in a rank's batch.",
    "global_batch_size": "Samples of all ranks in a step.",
    "drop_last": "Whether an epoch's short last batch is left out.",
    "steps": "Steps in an epoch.",
    "seed": "Seed of the order.",
    "shuffle": "Whether samples are shuffled.",
    "lanes": "Streams to which shards are dealt. A batch takes samples from each.",
    "shuffle_block": "Samples that are mixed at a time, over all lanes.",
    "cache": "The most that each node's cache may hold.",
    "link": "Bytes a second from storage to a node.",
    "latency": "Time from a request to its first byte.",
    "step": "Time of a training step.",
    "epochs": "Epochs that were simulated.",
    "grouping": "How samples are grouped into rows or batches, if at all.",
}


def shown(report: Report) -> dict[str, Any]:
    """Return what the page shows besides its charts."""
    return {
        "subject": _subject(report),
        "headline": asdict(headline(report)),
        "findings": [asdict(finding) for finding in findings(report)],
        "figures": _figures(report),
        "wanted": _wanted(report),
        "points": _points(report),
        "chosen": {name: report.advice[name] for name in ("command", "python")} if report.advice else {},
        "names": _NAMES,
        "quality": _quality(report),
        "epochs": _epochs(report),
        "resume": _resume(report),
        "settings": [[name, _setting(name, value), _MEANINGS.get(name, "")] for name, value in report.settings.items()],
    }


def _subject(report: Report) -> str:
    some = report.settings
    link = f"a link of {words.size(some['link'])}/s" if some["link"] else "a link without a limit"
    data = "Made-up data" if some["data"] == MADE_UP else str(some["data"])
    stored = f"{words.size(some['bytes'])} in {words.count(some['shards'])} shards"
    readers = f"{format_count(some['nodes'], 'node')} with {format_count(some['ranks_per_node'], 'rank')} each"
    return (
        f"{data}: {words.count(some['samples'])} samples of {words.size(some['sample_bytes'])} ({stored}), read by "
        f"{readers}. A step takes {words.count(some['global_batch_size'])} samples and {words.seconds(some['step'])}. "
        f"Each node has {link} and a cache of {words.size(some['cache'])}."
    )


def _figures(report: Report) -> list[dict[str, str]]:
    whole, cost, limit = report.whole, report.cost, report.settings["cache"]
    about = "" if whole.exact else f", ± {words.share(whole.error)}"
    peak = max((each.peak_cache for each in report.epochs), default=0)
    requests, egress = words.money(cost.requests, cost.currency), words.money(cost.egress, cost.currency)
    prices = f"at {cost.per_thousand_requests:g} for 1,000 requests and {cost.per_gigabyte:g} for 1 GB"
    rows = [
        (
            "Downloaded in an epoch",
            f"{words.size(whole.bytes)}{about}",
            f"By all nodes. The minimum is {words.size(whole.minimum)}: each node downloads each of its shards once.",
        ),
        (
            "Downloads by need",
            words.times(whole.bytes - whole.ahead, whole.minimum),
            "1 is the best. More means that shards were evicted and downloaded again.",
        ),
        (
            "Downloads by dataset",
            words.times(whole.bytes, whole.dataset),
            f"The dataset has {words.size(whole.dataset)}. More than 1: several nodes read the same shards.",
        ),
        ("Requests in an epoch", words.count(whole.requests), "Reads from storage, which most clouds charge for."),
        ("Time to first batch", words.seconds(whole.first_batch), "From the start of the job, on the slowest rank."),
        (
            "Steps that wait",
            words.share(whole.waiting_share),
            f"Their waits add up to {words.seconds(whole.waited)} in an epoch.",
        ),
        ("Time of an epoch", words.seconds(whole.seconds), "All steps and all waits."),
        (
            "Cache needed",
            words.size(whole.cache_needed) if whole.cache_needed else "unknown",
            "On each node, with the simulated lanes and block: the shards in use at a time.",
        ),
        ("Cache used", words.size(peak), f"The most that a node's cache held; its limit is {words.size(limit)}."),
        (
            "Cost of an epoch",
            words.money(cost.requests + cost.egress, cost.currency),
            f"{requests} for requests, {egress} for bytes; {prices}.",
        ),
    ]
    found = report.busiest
    for name, label in (("step", "step"), ("micro_batch", "micro-batch")):
        if name in found:
            note = (
                f"Its cost over the mean of all ranks, {found[f'{name}_without']:.3f} without balance. 1 is the best."
            )
            rows.append((f"Busiest rank in a {label}", f"{found[name]:.3f}", note))
    return [{"label": label, "value": value, "note": note} for label, value, note in rows]


def _wanted(report: Report) -> str:
    """Return the quality that the recommendation must reach, in a sentence."""
    if not report.advice:
        return ""
    part = words.share(report.advice["wanted"]["distinct"])
    return (
        f"Wanted: a batch has at least {part} of the shards that an exact shuffle mixes in it, enough of them new "
        "since the previous batch, and the reading order does not depend on the storage order (correlation near 0)."
    )


def _points(report: Report) -> list[dict[str, str]]:
    """Return each point of the curve as arguments."""
    found = []
    for choice in report.advice.get("curve", ()):
        some = {"lanes": choice["lanes"], "shuffle_block": choice["shuffle_block"], "cache": choice["cache_bytes"]}
        found.append(
            {
                "command": command(report.settings, **some),
                "python": python(report.settings, **some),
                "cache": words.limit(choice["cache_bytes"]),
            }
        )
    return found


def _quality(report: Report) -> dict[str, Any] | None:
    if not report.quality:
        return None
    methods: Sequence[dict[str, Any]] = report.quality["methods"]
    kind = kinds(methods[0]["distinct_of"])
    heads = ["shuffle", "bytes held", f"{kind} in a batch", "in 95 of 100 batches at least", "correlation", "distance"]
    rows = [
        [
            _NAMES.get(each["method"], each["method"]),
            words.size(each["held_bytes"]),
            f"{each['distinct']:,.1f}{_error(each['distinct_error'])}",
            f"{each['distinct_p5']:,.0f}",
            f"{each['correlation']:+.4f}{_error(each['correlation_error'])}",
            f"{each['neighbour_distance']:.3f}",
        ]
        for each in methods
    ]
    return {"heads": heads, "rows": rows, "sampling": report.quality["sampling"], "kind": kind}


def _error(error: float) -> str:
    return f" ± {error:.2g}" if error else ""


def _epochs(report: Report) -> dict[str, Any]:
    least = "minimum" if report.whole.exact else "minimum in the whole epoch"
    heads = [
        "node",
        "epoch",
        "steps",
        "downloaded",
        least,
        "requests",
        "first batch",
        "steps that waited",
        "waited",
        "most in cache",
    ]
    rows = [
        [
            str(each.node),
            str(each.epoch),
            f"{each.steps:,}",
            words.size(each.traffic.bytes),
            words.size(each.traffic.minimum),
            f"{each.traffic.requests:,}",
            words.seconds(each.first_batch),
            f"{each.waiting_steps:,}",
            words.seconds(each.waited),
            words.size(each.peak_cache),
        ]
        for each in report.epochs
    ]
    return {"heads": heads, "rows": rows}


def _resume(report: Report) -> list[list[str]] | None:
    after = report.resume
    if after is None:
        return None
    cold = ["with empty caches", words.size(after.cold_bytes), "to the epoch's end, by all nodes, if every node is new"]
    warm = ["downloaded", words.size(after.bytes), "to the epoch's end, by all nodes; the old nodes keep their caches"]
    return [
        ["nodes", f"{after.nodes:,}", f"{after.world_size:,} ranks"],
        *([cold] if after.bytes == after.cold_bytes else [warm, cold]),
        ["time to first batch", words.seconds(after.first_batch), "from the restart"],
        ["waits", words.seconds(after.waited), "of all simulated steps"],
    ]


def _setting(name: str, value: object) -> str:
    if value is None:
        return "no limit" if name == "link" else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if name in _SIZES:
        return words.size(value)
    if name == "link":
        return f"{words.size(value)}/s"
    return words.seconds(value) if name in ("latency", "step") else f"{value:,}"
