"""What a report means, in plain words: whether and why training waits, and whether cache, downloads and shuffle are as
they should be. Each finding has a state: "good", "warn" or "bad"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mdsx.simulate import words
from mdsx.simulate.report import Report

_NOTHING, _LITTLE = 0.01, 0.05  # of the time that training waits
_AGAIN = 1.05  # a node's downloads relative to its needs
_SHARED = 1.25  # all nodes' needs relative to the dataset
_NEAR = 0.9  # of the link's rate
_EARLY, _REST = 2 / 3, 0.02  # waits are at the start if this much of the time has at most this share of the waits


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: `title` names it, `text` explains it, and `todo` says what to change, if anything."""

    state: str
    title: str
    text: str
    todo: str = ""


def headline(report: Report) -> Finding:
    """Return the verdict: whether training waits for data, and why."""
    whole = report.whole
    lost = whole.waited / whole.seconds if whole.seconds else 0.0
    waits = f"{words.share(whole.waiting_share)} of the steps wait, {words.seconds(whole.waited)} of"
    text = f"{waits} {words.seconds(whole.seconds)} in an epoch ({words.share(lost)})."
    if lost < _NOTHING:
        return Finding("good", "The loader keeps up", text)
    settled = _settled(report)
    if settled is not None:
        title = f"Training waits {words.seconds(whole.waited)} at its start, then no more"
        return Finding("warn", title, text, _start(report, settled))
    cause, todo = _cause(report)
    title = f"Training waits {words.share(lost)} of the time: {cause}"
    return Finding("warn" if lost < _LITTLE else "bad", title, text, todo)


def findings(report: Report) -> Iterator[Finding]:
    """Yield the other findings: cache, downloads, shuffle."""
    yield _cache(report)
    yield _downloads(report)
    if report.quality:
        yield _shuffle(report)


def _settled(report: Report) -> float | None:
    """Return the second after which training no longer waits, if it waits only at its start."""
    last = 0.0
    for each in filter(lambda one: one.seconds, report.series):
        total, end = each.waited[-1], each.seconds[-1]
        enough = next(at for at, waited in zip(each.seconds, each.waited, strict=True) if waited >= (1 - _REST) * total)
        if enough > _EARLY * end:
            return None
        last = max(last, enough)
    return last if report.series else None


def _start(report: Report, settled: float) -> str:
    """Return why training waits at its start, and what helps."""
    whole, link = report.whole, report.settings["link"]
    todo = f"It no longer waits after {words.seconds(settled)}."
    if link and whole.cache_needed:
        fill = words.seconds(whole.cache_needed / link)
        todo += (
            f" Until then a node downloads the shards in use: {words.size(whole.cache_needed)}, {fill} at the link's"
        )
        todo += " speed. This happens once in a run; a smaller block or fewer lanes make it shorter."
    return todo


def _cause(report: Report) -> tuple[str, str]:
    """Return why training waits, and what helps."""
    whole, settings = report.whole, report.settings
    link, compute = settings["link"], settings["steps"] * settings["step"]
    needed = whole.bytes / settings["nodes"] / compute if compute else float("inf")
    if settings["cache"] < whole.cache_needed:
        todo = "Shards are evicted while they are in use, and are downloaded again or read sample by sample."
        return "the cache is too small", f"{todo} Give each node {words.limit(whole.cache_needed)} or more."
    if link and needed > _NEAR * link:
        speed = f"a node needs {words.size(needed)}/s" if compute else "steps take no time"
        todo = "Lanes and block do not change this. A faster link or smaller stored samples would help."
        if settings["cache"] < whole.dataset:
            todo += f" With a cache for the whole dataset, {words.size(whole.dataset)}, only the first epoch waits."
        return f"the link is the limit ({speed}, the link has {words.size(link)}/s)", todo
    todo = "With a larger cache, shards are fetched earlier. More workers prepare more batches ahead."
    return "shards arrive too late", todo


def _cache(report: Report) -> Finding:
    whole, limit = report.whole, report.settings["cache"]
    peak = max((each.peak_cache for each in report.epochs), default=0)
    held = f"It held {words.size(peak)} at most."
    if not whole.cache_needed:
        return Finding("good", "Cache", f"The limit is {words.size(limit)} on each node. {held}")
    need = f"a node uses shards of {words.size(whole.cache_needed)} at a time"
    if limit >= whole.cache_needed:
        return Finding("good", "Cache is large enough", f"{words.size(limit)} on each node; {need}. {held}")
    todo = f"Set the cache to {words.limit(whole.cache_needed)} or more, or use fewer lanes and a smaller block."
    return Finding("bad", "Cache is too small", f"{words.size(limit)} on each node, but {need}. {held}", todo)


def _downloads(report: Report) -> Finding:
    whole = report.whole
    again = whole.duplication
    shared = whole.minimum / whole.dataset if whole.dataset else 1.0
    text = f"An epoch downloads {words.size(whole.bytes)}: {words.times(whole.bytes, whole.dataset)} the dataset."
    if again > _AGAIN:
        title = f"Shards are downloaded {again:.3g} times"
        todo = "A larger cache keeps them until they are needed again."
        return Finding("bad" if again > 1.5 else "warn", title, text, todo)
    if shared > _SHARED:
        title = f"{shared:.3g} nodes download each shard, on average"
        todo = "Use a number of lanes that is a multiple of the number of nodes: each node then has its own shards."
        return Finding("warn", title, text, todo)
    return Finding("good", "Each shard is downloaded once", text)


def _shuffle(report: Report) -> Finding:
    methods: dict[str, Any] = {each["method"]: each for each in report.quality["methods"]}
    ours, exact = methods["mdsx"], methods["exact"]
    wanted, best = report.advice["wanted"]["distinct"], report.advice["chosen"]
    part = ours["distinct"] / exact["distinct"]
    text = (
        f"A batch mixes {_number(ours['distinct'])} {kinds(ours['distinct_of'])}. An exact shuffle, which needs the "
        f"whole dataset on each node, mixes {_number(exact['distinct'])}. Wanted are {words.share(wanted)} of that."
    )
    recommended = all(report.settings[name] == best[name] for name in ("lanes", "shuffle_block"))
    if part >= wanted or (recommended and best["enough"]):
        return Finding("good", "Shuffle is as good as wanted", text)
    if recommended:
        return Finding("warn", "No lanes and block shuffle as well as wanted", text, "Smaller shards would mix better.")
    title = f"A batch mixes {words.share(part)} of what an exact shuffle does"
    return Finding("warn", title, text, "Use the recommended lanes and shuffle_block, below.")


def kinds(distinct_of: str) -> str:
    """Return what is counted in a batch: shards, or the values of a column."""
    return "shards" if distinct_of == "shards" else f"values of {distinct_of}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
