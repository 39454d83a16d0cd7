"""The checks of a file that an earlier run left in the cache, before its samples are used.

The dataset is compressed on disk, so it is read through the cache, like one on S3.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import mdsx
from mdsx.datasets import view_of
from mdsx.format import Index
from mdsx.shards import Shards
from mdsx.storage.cache import Cache
from mdsx.torch import StreamingDataLoader, StreamingDataset

N, PER_SHARD = 64, 16


def write(url: str, offset: int = 0, compression: str | None = "zstd") -> None:
    """Four shards of 16 samples; with another offset, other samples of the same size."""
    with mdsx.Writer(url, {"id": "int64", "text": "str"}, shard_size=2048, compression=compression) as out:
        for number in range(offset, offset + N):
            out.write({"id": number, "text": f"{number:06} " * 10})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("dataset") / "data")
    write(url)
    return url


def sample_of(found: dict[str, Any]) -> int:
    assert found["text"] == f"{int(found['id']):06} " * 10
    return int(found["id"])


def one_by_one(url: str, cache: Path, verify: Literal["size", "full"] = "full") -> list[int]:
    data = mdsx.Dataset(url, cache=mdsx.Cache(cache, verify=verify))
    return [sample_of(found) for found in map(data.__getitem__, range(N))]


def streamed(url: str, cache: Path, verify: Literal["size", "full"] = "full") -> list[int]:
    return two_epochs(StreamingDataset(url, shuffle=False, cache=mdsx.Cache(cache, verify=verify)))


def streamed_after_samples(url: str, cache: Path, verify: Literal["size", "full"] = "full") -> list[int]:
    """The same dataset has read one sample of each shard, and checked only that."""
    data = mdsx.Dataset(url, cache=mdsx.Cache(cache, verify=verify))
    assert [data[number]["id"] for number in range(0, N, PER_SHARD)] == list(range(0, N, PER_SHARD))
    return two_epochs(StreamingDataset(data, shuffle=False))


def two_epochs(data: StreamingDataset) -> list[int]:
    loader = StreamingDataLoader(data, 8)
    batches = [batch for _ in range(2) for batch in loader]
    found = [sample_of({"id": n, "text": t}) for each in batches for n, t in zip(each["id"], each["text"], strict=True)]
    assert found[:N] == found[N:]
    return found[:N]


Read = Callable[..., list[int]]
Damage = Callable[[Path], None]


def flip(place: float) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(len(data) * place)] ^= 4
        path.write_bytes(data)

    return damage


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 9)


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def foreign(path: Path) -> None:
    """Return another shard with the same columns and size, and right checksums."""
    other = path.parent.parent.parent / "other"
    if not other.exists():
        write(str(other), offset=1000, compression=None)
    path.write_bytes((other / "shard.00001.mdsx").read_bytes())


def cached(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.mdsx"))


def prefetch(shards: Shards, shard: int) -> None:
    assert shards.bring(shard, needed_in=1.0, needs={}, received=lambda size: None) is None


@pytest.fixture
def cache(url: str, tmp_path: Path) -> Path:
    """A cache with all shards, from an earlier run."""
    one_by_one(url, tmp_path / "cache")
    assert len(cached(tmp_path / "cache")) == N // PER_SHARD
    return tmp_path / "cache"


@pytest.mark.parametrize("damage", [flip(0.01), flip(0.5), flip(0.999), cut, grown, emptied, zeroed, foreign])
@pytest.mark.parametrize("read", [one_by_one, streamed, streamed_after_samples])
def test_full_downloads_a_damaged_file_again(url: str, cache: Path, read: Read, damage: Damage) -> None:
    whole = {path: path.read_bytes() for path in cached(cache)}
    for path in whole:
        damage(path)
    assert read(url, cache) == list(range(N))
    assert all(path.read_bytes() == whole[path] for path in cached(cache))


@pytest.mark.parametrize("damage", [flip(0.01), cut, grown, emptied, zeroed])
@pytest.mark.parametrize("read", [one_by_one, streamed])
def test_size_downloads_a_wrong_size_or_header_again(url: str, cache: Path, read: Read, damage: Damage) -> None:
    for path in cached(cache):
        damage(path)
    assert read(url, cache, verify="size") == list(range(N))


@pytest.mark.parametrize(("verify", "hashed"), [("full", 4), ("size", 0)])
def test_size_reads_only_requested_bytes(
    url: str, cache: Path, verify: Literal["size", "full"], hashed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[int] = []
    monkeypatch.setattr(Index, "verify", lambda self, shard, opened, *, file: verified.append(shard))
    shards = Shards(url, cache=Cache(cache, verify=verify))
    assert all(shards.open(shard, whole=True) for shard in range(4))
    assert len(verified) == hashed


def test_a_fresh_download_is_not_hashed_again(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Index, "verify", lambda self, shard, opened, *, file: pytest.fail("hashed again"))
    shards = Shards(url, cache=Cache(tmp_path / "cache"))
    assert [shards.fetch(shard) for shard in range(2)] == [None] * 2
    for shard in range(2, 4):
        prefetch(shards, shard)
        assert shards.open(shard, whole=True)


@pytest.mark.parametrize("damage", [flip(0.01), flip(0.5), flip(0.999), cut, zeroed, foreign])
def test_a_prefetched_file_damaged_before_it_is_opened_is_downloaded_again(
    url: str, tmp_path: Path, damage: Damage
) -> None:
    shards = Shards(url, cache=Cache(tmp_path / "cache"))
    prefetch(shards, 1)
    (path,) = cached(tmp_path / "cache")
    whole = path.read_bytes()
    damage(path)
    assert not shards.open(1, whole=True)
    assert shards.fetch(1) is None
    assert path.read_bytes() == whole


def test_full_hashes_a_file_at_each_opening(url: str, cache: Path) -> None:
    """It may be damaged while no run holds it."""
    shards = Shards(url, cache=Cache(cache))
    assert all(shards.open(shard, whole=True) for shard in range(4))
    for shard in range(4):
        shards.close(shard)
    for path in cached(cache):
        flip(0.9)(path)
    assert not any(shards.open(shard, whole=True) for shard in range(4))
    assert [shards.fetch(shard) for shard in range(4)] == [None] * 4


def test_a_mixture_and_its_components_take_verify(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[int] = []
    monkeypatch.setattr(Index, "verify", lambda self, shard, opened, *, file: verified.append(shard))
    monkeypatch.setenv("MDSX_CACHE", str(cache))
    mixture = mdsx.Mixture([url], cache=Cache(cache, verify="size"))
    late = StreamingDataset(mdsx.Mixture([url]), cache=Cache(cache, verify="size"))
    for view in (view_of(mixture), late._reading.view):
        assert view.excerpts[0].shards.open(0, whole=True)
    assert not verified
    assert view_of(mdsx.Mixture([url])).excerpts[0].shards.open(0, whole=True)
    assert verified == [0]


def test_other_values_of_verify_are_refused(url: str, tmp_path: Path) -> None:
    for wrong in ("none", "", None, True):
        with pytest.raises(mdsx.UsageError, match='"full" or "size"'):
            mdsx.Cache(tmp_path, verify=wrong)  # type: ignore[arg-type]
    with pytest.raises(mdsx.UsageError, match=r"two different caches.*give cache= in one place"):
        StreamingDataset(mdsx.Dataset(url, cache=tmp_path), cache=mdsx.Cache(tmp_path, verify="size"))
