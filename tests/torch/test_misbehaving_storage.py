"""Storage that misbehaves, in every way of reading. A fault that a retry overcomes is invisible. Any other fault raises
at its batch and names the shard. The tests compare each sample that they read with what was written."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.storage import retry
from mdsx.storage.remote import limits
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.conftest import Often
from tools.fault_proxy import (
    Fault,
    Proxy,
    cut,
    flip,
    ignored_range,
    lost,
    other_range,
    replaced,
    reset,
    stall,
    status,
    trickle,
)
from tools.servers.s3 import S3Server

SHARDS, PER_SHARD, BATCH = 13, 16, 26
N = SHARDS * PER_SHARD
COLUMNS = {"id": "int64", "numbers": "uint16[512]", "text": "str", "data": "bytes?"}
_COUNT = itertools.count()


def sample(number: int) -> dict[str, Any]:
    """Return a sample; all have the same number of bytes."""
    text = f"sample number {number:06}. " * 30
    data = None if number % 4 == 0 else text[: number % 50 * 7].encode()
    numbers = [(number * 7 + place) % 65536 for place in range(512)]
    return {"id": number, "numbers": numbers, "text": text[len(data or b"") :], "data": data}


@pytest.fixture(scope="module", params=[None, "zstd"], ids=["plain", "zstd"])
def url(request: pytest.FixtureRequest, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """13 shards of 16 samples."""
    url = s3.make_bucket(f"disturbed-{next(_COUNT)}") + "/data"
    with mdsx.Writer(url, COLUMNS, shard_size=28_500, compression=request.param) as out:
        for number in range(N):
            out.write(sample(number))
    written = mdsx.Dataset(url, cache=tmp_path_factory.mktemp("cache"))
    assert excerpt_of(written).shards.index.counts.tolist() == [PER_SHARD] * SHARDS
    return url


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits of seconds instead of minutes."""
    monkeypatch.setattr(limits, "SILENCE", 2)
    monkeypatch.setattr(limits, "TRICKLE", 2)


def checked(found: dict[str, Any]) -> int:
    number = int(found["id"])
    expected = sample(number)
    assert found["numbers"].tolist() == expected["numbers"]
    assert (found["text"], found["data"]) == (expected["text"], expected["data"])
    return number


def checked_batch(batch: dict[str, Any]) -> list[int]:
    return [checked(dict(zip(batch, values, strict=True))) for values in zip(*batch.values(), strict=True)]


# --- the ways of reading: the numbers of the samples that came


def by_range(url: str, cache: Path) -> Iterator[int]:
    dataset = mdsx.Dataset(url, cache=mdsx.Cache(cache, limit="10MB"))
    for number in range(0, N, PER_SHARD // 2):
        yield checked(dataset[number])


def whole_shards(url: str, cache: Path) -> Iterator[int]:
    dataset = mdsx.Dataset(url, cache=mdsx.Cache(cache, limit="10MB"))
    for number in range(N):
        yield checked(dataset[number])


def loader(url: str, cache: Path, workers: int = 0) -> StreamingDataLoader:
    data = StreamingDataset(url, seed=3, shuffle=mdsx.Shuffle(lanes=8), cache=mdsx.Cache(cache, limit="10MB"))
    return StreamingDataLoader(data, BATCH, num_workers=workers, drop_last=False)


def first_batch(url: str, cache: Path) -> Iterator[int]:
    yield from checked_batch(next(iter(loader(url, cache))))


def two_epochs(url: str, cache: Path, workers: int = 0) -> Iterator[int]:
    batches = loader(url, cache, workers)
    for _ in range(2):
        for batch in batches:
            yield from checked_batch(batch)


def by_workers(url: str, cache: Path) -> Iterator[int]:
    yield from two_epochs(url, cache, workers=2)


Way = Callable[[str, Path], Iterator[int]]
WAYS: dict[Way, list[int]] = {
    by_range: list(range(0, N, PER_SHARD // 2)),
    whole_shards: list(range(N)),
    two_epochs: sorted([*range(N)] * 2),
    by_workers: sorted([*range(N)] * 2),
}
FOR_NOW: list[Fault] = [
    *(cut(0.3), cut(0), reset(0.7), reset(None), lost),
    *(status(500, "InternalError"), status(503, "SlowDown"), flip(0.5), flip(0.05, 7)),
    *(other_range(admitted=True), other_range(admitted=False), ignored_range, stall(0.5)),
]
FOREVER: list[tuple[Fault, type[mdsx.MdsxError], str]] = [
    (status(404, "NoSuchKey"), mdsx.MissingError, "not found"),
    (status(403, "ExpiredToken"), mdsx.ForbiddenError, "ExpiredToken"),
    (status(503, "SlowDown"), mdsx.TransportError, "503 SlowDown.*given up after 3 tries"),
    (cut(0), mdsx.TruncatedError, "ended early.*given up after 3 tries"),
    (reset(0), mdsx.TruncatedError, "broke off.*given up after 3 tries"),
    (flip(0.5), mdsx.CorruptError, r"XXH3|checksum|damaged|match|seek table"),
    (
        replaced(b"another object"),
        mdsx.TransportError,
        "another size|is not the one that the index names|ends before the bytes asked for",
    ),
]


IN_THIS_PROCESS = [way for way in WAYS if way is not by_workers]
ONCE_BY_WORKERS = pytest.mark.parametrize(
    ("url", "way"),
    [(None, by_workers), *itertools.product((None, "zstd"), IN_THIS_PROCESS)],
    indirect=["url"],
)  # fmt: skip


@pytest.mark.slow_if("id not in {'None-whole_shards', 'zstd-by_range'}")
@ONCE_BY_WORKERS
def test_transient_faults_are_invisible(proxy: Proxy, url: str, tmp_path: Path, way: Way, often: Often) -> None:
    """Each shard has another fault, in one of its first two requests."""
    for turn in range(often(1 if way is by_workers else 2, long=2 * SHARDS)):
        proxy.clear()
        rules = [
            proxy.add(fault, key=f"*/shard.{(number + turn // 2) % SHARDS:05}.*", skip=turn % 2, times=1)
            for number, fault in enumerate(FOR_NOW)
        ]
        assert sorted(way(url, tmp_path / str(turn))) == WAYS[way]
        assert turn % 2 or all(rule.hits for rule in rules)


def test_first_batch_arrives_when_every_request_fails_once(
    proxy: Proxy, url: str, tmp_path: Path, often: Often
) -> None:
    faults = [*FOR_NOW, trickle(0.1, 0)]
    for turn in range(often(2, long=len(faults))):
        proxy.clear()
        met = itertools.islice(itertools.cycle(faults), turn * 7, turn * 7 + SHARDS)
        rules = [proxy.add(fault, key=f"*/shard.{number:05}.*", times=1) for number, fault in enumerate(met)]
        assert len(set(first_batch(url, tmp_path / str(turn)))) == BATCH
        assert sum(rule.hits for rule in rules) > SHARDS // 2


@pytest.mark.parametrize("way", [by_range, two_epochs])
def test_random_faults_together_are_invisible(proxy: Proxy, url: str, tmp_path: Path, way: Way, often: Often) -> None:
    """Without faults that take a minute to notice, and without two flips in a row, which are an error."""
    for turn in range(often(1, long=20)):
        proxy.clear()
        for fault in (*FOR_NOW[:7], ignored_range, other_range(admitted=True)):
            proxy.add(fault, share=0.015)
        assert sorted(way(url, tmp_path / str(turn))) == WAYS[way]


@pytest.mark.slow_if("id in {'None-by_workers', 'zstd-two_epochs', 'zstd-whole_shards', 'zstd-by_range'}")
@ONCE_BY_WORKERS
def test_permanent_faults_raise_naming_shard_and_cause(
    proxy: Proxy, url: str, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch, often: Often
) -> None:
    monkeypatch.setattr(retry, "TRIES", 3)
    some = list(WAYS).index(way)  # other faults for each way, in a short run
    faults = FOREVER[often(some, long=0) :: often(4 if way is by_workers else 2, long=1)]
    for number, (fault, kind, said) in enumerate(faults):
        proxy.clear()
        proxy.add(fault, key="*/shard.00003.*")
        started = time.monotonic()
        with pytest.raises(kind, match=rf"(?s)/data/shard\.00003\.mdsx.*({said})") as caught:
            list(way(url, tmp_path / str(number)))
        assert time.monotonic() - started < 60
        assert proxy.server.secret not in str(caught.value)


def test_permanent_bit_flip_in_a_range_names_the_sample(proxy: Proxy, url: str, tmp_path: Path) -> None:
    """A compressed shard names the seek table or the frame instead."""
    proxy.add(flip(0.5), key="*/shard.00003.*")
    with pytest.raises(
        mdsx.CorruptError, match=r"/data/shard\.00003\.mdsx: sample 5|\.zst: (seek table|frame 0)"
    ) as caught:
        mdsx.Dataset(url, cache=tmp_path)[3 * PER_SHARD + 5]
    assert str(caught.value.file).startswith(url)


def test_damaged_downloads_never_reach_batches_or_the_cache(proxy: Proxy, url: str, tmp_path: Path) -> None:
    """Ranges are undamaged here, so some samples may arrive. The test compares each of them with what was written."""
    proxy.add(flip(0.5), key="*/shard.*", when=lambda exchange: not exchange.range)
    with pytest.raises(mdsx.CorruptError, match=r"/data/shard\.000\d\d\.mdsx"):
        list(two_epochs(url, tmp_path))
    assert not [path for path in tmp_path.rglob("*.mdsx*") if path.stat().st_size]


@pytest.mark.parametrize("fault", [flip(0.01), flip(0.5, 5), cut(0.5)])
def test_index_damaged_in_transit_is_fetched_again(proxy: Proxy, url: str, tmp_path: Path, fault: Fault) -> None:
    rule = proxy.add(fault, key="*/index.json", times=1)
    assert len(mdsx.Dataset(url, cache=tmp_path)) == N
    assert rule.hits == 1


def test_permanently_damaged_index_raises_naming_it(proxy: Proxy, url: str, tmp_path: Path) -> None:
    rule = proxy.add(flip(0.5), key="*/index.json")
    with pytest.raises(mdsx.CorruptError, match=r"/data/index\.json"):
        mdsx.Dataset(url, cache=tmp_path)
    assert rule.hits == 2


def test_shard_replaced_during_the_epoch_is_never_read(proxy: Proxy, url: str, tmp_path: Path) -> None:
    """The new shard has the same size, another ETag and other undamaged samples. The server ignores If-Match."""
    dataset, other = mdsx.Dataset(url, cache=tmp_path), url.replace("/data", "/other")
    with mdsx.Writer(
        other, COLUMNS, shard_size=28_500, compression=excerpt_of(dataset).shards.index.compression
    ) as out:
        for number in range(PER_SHARD):
            out.write({**sample(number), "id": number + 1})
    assert checked(dataset[0]) == 0
    name = excerpt_of(dataset).shards.index.name(0)
    stored = mdsx.storage.open_storage(other).get(name).data
    size = int(excerpt_of(dataset).shards.index.sizes[0])
    proxy.add(replaced(stored[:size] + bytes(max(size - len(stored), 0))), key=f"*/data/{name}")
    with pytest.raises((mdsx.ChangedError, mdsx.CorruptError), match=r"/data/shard\.00000"):
        [checked(dataset[number]) for number in range(1, PER_SHARD)]


@pytest.mark.slow_if("workers == 2")
@pytest.mark.parametrize(("url", "workers"), [(None, 2), ("zstd", 0)], indirect=["url"])
def test_run_continues_after_expired_credentials_are_renewed(
    proxy: Proxy, url: str, tmp_path: Path, workers: int
) -> None:
    expected = [checked_batch(batch) for batch in loader(url, tmp_path / "undisturbed")]
    proxy.add(status(403, "ExpiredToken"), key="*/shard.*", skip=20)
    batches = loader(url, tmp_path / "cache", workers)
    iteration = iter(batches)
    came: list[list[int]] = []
    with pytest.raises(mdsx.ForbiddenError, match=r"(?s)/data/shard.*ExpiredToken"):
        came.extend(map(checked_batch, iteration))
    assert len(came) < len(expected)
    proxy.clear()
    came += [checked_batch(batch) for batch in (iteration if workers else batches)]  # the same iteration, or a new one
    assert came == expected


def test_trickling_server_raises_in_bounded_time(
    proxy: Proxy, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE", 3.0)
    proxy.add(trickle(0.1, 0), key="*/shard.00003.*")
    started = time.monotonic()
    with pytest.raises(mdsx.TruncatedError, match=r"shard\.00003.*trickles: \d+ bytes in \d s; given up after"):
        list(two_epochs(url, tmp_path))
    assert time.monotonic() - started < 60


def test_state_saved_between_errors_resumes_exactly(proxy: Proxy, url: str, tmp_path: Path) -> None:
    """The test abandons and resumes the run after each error. No sample is lost or repeated."""
    for fault in (status(404, "NoSuchKey"), flip(0.5), cut(0)):
        proxy.add(fault, share=0.03, key="*/shard.*")
    came: list[int] = []
    batches, errors = loader(url, tmp_path / "0"), 0
    while batches.epoch == 0:
        try:
            for batch in batches:
                came += checked_batch(batch)
        except mdsx.MdsxError:
            errors += 1
            assert errors < 50
            state = batches.state_dict()
            batches = loader(url, tmp_path / "0")
            batches.load_state_dict(state)
    assert sorted(came) == list(range(N))
