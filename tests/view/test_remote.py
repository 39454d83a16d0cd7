"""A remote dataset is read by range: what the server of the storage counts is kilobytes, not shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.format import filenames
from mdsx.view import Library, Opening
from tools.fault_proxy import Proxy

SAMPLE = 4000  # bytes
SHARD = 400_000
SAMPLES = 3000


def sent(counting: Proxy) -> tuple[int, int]:
    """Return the requests for shards, and the bytes that were sent of them."""
    found = counting.sent("*.mdsx")
    return found.ranges + found.whole, found.range_bytes + found.whole_bytes


@pytest.fixture
def library(counting: Proxy, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(1)
    with mdsx.Writer(s3_url, {"text": "str", "data": "bytes"}, shard_size=SHARD) as out:
        for number in range(SAMPLES):
            out.write({"text": f"text {number}", "data": rng.bytes(SAMPLE)})
    counting.asked.clear()
    return Library([s3_url], Opening())


def test_ten_samples_download_kilobytes(library: Library, counting: Proxy) -> None:
    """Of 12 MB in 30 shards: the list of ten samples and each of them, with what a page asks of it."""
    source = library.source(0)
    overview = source.overview()
    assert overview["size"] > 12_000_000
    assert sent(counting) == (0, 0)  # the index says it all
    source.samples(1500, 10)
    for number in range(1500, 1510):
        assert source.sample(number)["number"] == number
    requests, size = sent(counting)
    assert requests <= 3
    assert 10 * SAMPLE < size < 12 * SAMPLE + 16_000
    index = counting.sent(f"*/{filenames.INDEX}")
    assert index.whole_bytes + index.range_bytes < 20_000


def test_shards_and_the_order_download_nothing(library: Library, counting: Proxy) -> None:
    source = library.source(0)
    assert source.shards(0, 50)["total"] == 31
    source.sizes()
    assert len(library.order({"world_size": "4", "batch": "3"})["samples"]) == 32
    assert sent(counting) == (0, 0)


def test_a_check_reads_one_shard(library: Library, counting: Proxy) -> None:
    assert library.source(0).check(7)["state"] == "undamaged"
    _, size = sent(counting)
    assert SHARD * 0.9 < size < SHARD * 1.1


def test_a_search_stops_where_it_was_asked_to(library: Library, counting: Proxy) -> None:
    found = library.source(0).search("text", "text 25", range(200), 30.0)
    assert [match["number"] for match in found["matches"]] == [25]
    assert found["next"] == 200
    _, size = sent(counting)
    assert size < 3.5 * SHARD
