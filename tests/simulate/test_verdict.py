"""The verdict on a report: it names what makes training wait, and what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mdsx.simulate.report import Report
from mdsx.simulate.verdict import findings, headline
from tests.simulate.examples import example


def changed(settings: dict[str, Any] | None = None, **whole: Any) -> Report:
    plain = example()
    series = [replace(each, waited=[0.384 * at for at in each.seconds]) for each in plain.series]
    return replace(
        plain, series=series, settings={**plain.settings, **(settings or {})}, whole=replace(plain.whole, **whole)
    )


def test_a_loader_that_keeps_up_is_good() -> None:
    found = headline(example())
    assert (found.state, found.title) == ("good", "The loader keeps up")
    assert "0.03 % of the steps wait, 111 ms of 39.1 min" in found.text


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        (changed({"link": 2_000_000}, waited=900.0), "the link is the limit (a node needs 2.15 MB/s"),
        (changed({"cache": 10**9}, waited=900.0), "the cache is too small"),
        (changed(waited=900.0), "shards arrive too late"),
    ],
)
def test_waits_have_a_cause(report: Report, cause: str) -> None:
    found = headline(report)
    assert found.state == "bad"
    assert found.title.startswith(f"Training waits 38 % of the time: {cause}")
    assert found.todo


def test_waits_at_the_start_are_no_fault_of_the_link() -> None:
    report = replace(changed({"link": 50_000_000}, waited=900.0), series=example().series)
    found = headline(report)
    assert found.state == "warn"
    assert found.title == "Training waits 15 min at its start, then no more"
    assert "downloads the shards in use: 1.68 GB, 33.5 s at the link's speed" in found.todo


def test_a_short_wait_is_a_warning() -> None:
    assert headline(changed(waited=60.0)).state == "warn"


def test_findings_name_cache_downloads_and_shuffle() -> None:
    cache, downloads, shuffle = findings(example())
    assert (cache.state, cache.title) == ("good", "Cache is large enough")
    assert (downloads.state, downloads.title) == ("good", "Each shard is downloaded once")
    assert (shuffle.state, shuffle.title) == ("warn", "A batch mixes 45 % of what an exact shuffle does")


def test_a_cache_below_the_shards_in_use_is_bad() -> None:
    cache, downloads, _ = findings(changed({"cache": 10**9}, bytes=20_134_200_000))
    assert (cache.state, cache.title) == ("bad", "Cache is too small")
    assert "1.68GB" in cache.todo
    assert downloads.title == "Shards are downloaded 2 times"


def test_shards_that_many_nodes_read_are_found() -> None:
    _, downloads, _ = findings(changed(bytes=40 * 10**9, minimum=40 * 10**9))
    assert downloads.title == "4 nodes download each shard, on average"
    assert "multiple of the number of nodes" in downloads.todo


def test_the_recommended_shuffle_is_good_enough() -> None:
    *_, shuffle = findings(changed({"lanes": 64, "shuffle_block": 2**19}))
    assert (shuffle.state, shuffle.title) == ("good", "Shuffle is as good as wanted")
    plain = changed({"lanes": 64, "shuffle_block": 2**19})
    best = {**plain.advice["chosen"], "enough": False}
    *_, shuffle = findings(replace(plain, advice={**plain.advice, "chosen": best}))
    assert (shuffle.state, shuffle.title) == ("warn", "No lanes and block shuffle as well as wanted")


def test_without_quality_there_is_no_finding_of_the_shuffle() -> None:
    assert len(list(findings(example(quality={}, advice={})))) == 2


def test_a_run_without_steps_or_time_has_a_verdict() -> None:
    report = changed({"step": 0, "link": None}, seconds=0.0, waited=0.0, first_batch=0.0)
    assert headline(report).state == "good"
    assert headline(changed({"step": 0, "link": None}, waited=900.0, seconds=900.0)).title.startswith(
        "Training waits 100 %"
    )
