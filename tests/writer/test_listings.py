"""Requests in a bucket of many parts, counted by a proxy: what reads never lists, what writes lists its own part."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

import pytest

import mdsx
from tools.fault_proxy import Proxy

PARTS, SAMPLES = 12, 20


@pytest.fixture
def url(s3_url: str) -> str:
    for number in range(PARTS):
        write(f"{s3_url}/part-{number:05}", SAMPLES)
    mdsx.merge(s3_url)
    return s3_url


def write(url: str, count: int) -> None:
    with mdsx.Writer(url, {"id": "int64"}, shard_size=1000) as out:
        for number in range(count):
            out.write({"id": number})


def listed(counting: Proxy) -> list[str]:
    """Return the prefix of each listing of objects."""
    queries = (parse_qs(each.query) for each in counting.asked if each.method == "GET")
    return [query.get("prefix", [""])[0] for query in queries if "list-type" in query]


def test_opening_and_loading_never_list(counting: Proxy, url: str, tmp_path: Path) -> None:
    counting.asked.clear()
    assert mdsx.Dataset(url, cache=tmp_path / "one")[PARTS * SAMPLES // 2]["id"] < SAMPLES
    loader = mdsx.Loader(mdsx.Dataset(url, cache=tmp_path / "two"), batch_size=8, seed=1)
    assert len(next(iter(loader))["id"]) == 8
    assert counting.asked
    assert not listed(counting)


def test_a_writer_and_append_list_no_other_part(counting: Proxy, url: str) -> None:
    part = f"part-{PARTS:05}"
    counting.asked.clear()
    write(f"{url}/{part}", SAMPLES)
    mdsx.append(url, part)
    prefixes = listed(counting)
    assert prefixes
    assert all(prefix.startswith((part, "_")) for prefix in prefixes), prefixes


def test_a_merge_reads_the_index_of_each_part_once(counting: Proxy, s3_url: str) -> None:
    for number in range(PARTS):
        write(f"{s3_url}/part-{number:05}", SAMPLES)
    counting.asked.clear()
    mdsx.merge(s3_url)
    assert counting.sent("*/part-*/index.json")[::2] == (PARTS, 0)
    assert len(listed(counting)) < PARTS
