"""No unverified sample is returned, from a real S3 server or from objects replaced during a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.storage import open_storage
from tools.fault_proxy import Proxy
from tools.fault_proxy import flip as flip_on_its_way

N, PER_SHARD = 64, 16
SHARD = "*/shard.*"


def write(url: str, offset: int = 0) -> None:
    """Four shards of 16 samples; with another offset, other valid samples of the same size."""
    with mdsx.Writer(url, {"id": "int64", "data": "uint8[4096]"}, shard_size="66KiB") as out:
        for number in range(N):
            out.write({"id": number + offset, "data": np.full(4096, (number + offset) % 251, np.uint8)})


@pytest.fixture
def url(s3_url: str) -> str:
    write(f"{s3_url}/d")
    return f"{s3_url}/d"


def replace_shard(url: str, number: int, data: bytes) -> None:
    open_storage(url).put(f"shard.{number:05}.mdsx", data)


def other_shard(s3_url: str, number: int) -> bytes:
    write(f"{s3_url}/other", offset=1000)
    return open_storage(f"{s3_url}/other").get(f"shard.{number:05}.mdsx").data


def dataset(url: str, tmp_path: Path) -> mdsx.Dataset:
    return mdsx.Dataset(url, cache=mdsx.Cache(tmp_path / "cache", limit="1MB"))


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_sample_damaged_in_transit_is_fetched_again(url: str, tmp_path: Path, proxy: Proxy) -> None:
    data = dataset(url, tmp_path)
    rule = proxy.add(flip_on_its_way(), key=SHARD, times=1)
    assert data[20]["data"].tolist() == [20] * 4096
    assert rule.hits == 1


def test_a_sample_that_stays_damaged_raises_naming_it(url: str, tmp_path: Path, proxy: Proxy) -> None:
    data = dataset(url, tmp_path)
    proxy.add(flip_on_its_way(), key=SHARD, times=2)
    with pytest.raises(mdsx.CorruptError, match="sample 4") as caught:
        data[20]
    assert str(caught.value.file).endswith("/d/shard.00001.mdsx")


def test_a_shard_damaged_in_transit_is_fetched_again(url: str, tmp_path: Path, proxy: Proxy) -> None:
    data = dataset(url, tmp_path)
    rule = proxy.add(flip_on_its_way(), key=SHARD, times=1)
    assert [sample["id"] for sample in data[16:32]] == list(range(16, 32))
    assert rule.hits == 1


def test_a_shard_that_stays_damaged_is_never_cached(url: str, tmp_path: Path, proxy: Proxy) -> None:
    data = dataset(url, tmp_path)
    proxy.add(flip_on_its_way(), key=SHARD, times=2)
    with pytest.raises(mdsx.CorruptError, match="do not match the index"):
        data[16:32]
    assert not [path for path in (tmp_path / "cache").rglob("*.mdsx*") if path.stat().st_size]


def test_a_shard_replaced_between_requests_changes_its_etag(s3_url: str, url: str, tmp_path: Path) -> None:
    data, other = dataset(url, tmp_path), other_shard(s3_url, 1)
    assert data[16]["id"] == 16
    replace_shard(url, 1, other)  # the same size, and right checksums
    with pytest.raises(mdsx.ChangedError, match=r"shard\.00001"):
        data[17]
