"""Jobs that start cold on one node download each shard once, by the server's own count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.scale.cold import Plan, measure

pytestmark = pytest.mark.slow

SMALL = Plan(ranks=2, workers=2, shards=64, samples=64, batch=4)


@pytest.mark.parametrize("seeds", [True, False], ids=["other orders", "the same order"])
def test_two_jobs_download_each_shard_once(seeds: bool) -> None:
    found = measure(replace(SMALL, seeds=seeds))
    assert not found.wrong
    assert (found.downloads, found.most, found.downloaded) == (64, 1, found.dataset)
    assert 0 < found.ranged < 0.02 * found.dataset
