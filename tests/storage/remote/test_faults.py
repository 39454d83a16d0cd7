"""Servers that misbehave. Faults that a retry overcomes are invisible; others raise an error with the URL.

S3 meets every fault. The other clouds share the code that reads answers with it, and meet some.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import mdsx
from mdsx.storage import Storage, open_storage, retry, throttle
from mdsx.storage.remote import limits
from tests.forks import forked
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
from tools.servers.process import Server

DATA = bytes(range(256)) * 4 * 1024  # 1 MiB
FOR_NOW: dict[str, Fault] = {
    "truncated body": cut(0.4),
    "no body": cut(0),
    "reset in mid-body": reset(0.4),
    "reset before an answer": reset(None),
    "answer lost": lost,
    "stall in mid-body": stall(0.4),
    "no answer": stall(None),
    "trickle": trickle(0.05, 0.002),
    "500": status(500, "InternalError"),
    "503": status(503, "SlowDown"),
    "429": status(429, "TooManyRequests"),
    "400": status(400, "RequestTimeout"),
}


OTHERS = ["gs", "az"]
SOME = ["truncated body", "reset in mid-body", "answer lost", "no answer", "503", "429"]
POINTERS = {"s3": "AWS_ENDPOINT_URL", "gs": "STORAGE_EMULATOR_HOST", "az": "endpoint"}

_NUMBERS = itertools.count()  # the tests of a module may be divided, so that its fixtures are made again
everywhere = pytest.mark.parametrize("cloud", ["s3", *OTHERS])


@pytest.fixture
def cloud() -> str:
    return "s3"


@pytest.fixture(scope="module")
def proxies(request: pytest.FixtureRequest) -> Iterator[Callable[[str], tuple[Proxy, Storage]]]:
    """The proxy in front of a cloud, and one storage for all tests: an S3 client takes longer than most of them."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        @functools.cache
        def of(cloud: str) -> tuple[Proxy, Storage]:
            server: Server = request.getfixturevalue(cloud)
            proxy = stack.enter_context(Proxy(server))
            for name, value in proxy.env().items():
                patch.setenv(name, value)
            return proxy, open_storage(server.make_bucket(f"misbehaving-{next(_NUMBERS)}") + "/set")

        yield of


@pytest.fixture
def proxy(cloud: str, proxies: Callable[[str], tuple[Proxy, Storage]], monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """A proxy without a fault yet. Patience is short: seconds, not minutes."""
    monkeypatch.setattr(retry, "pause", lambda failures: time.sleep(0.01))
    monkeypatch.setattr(throttle, "pause", lambda seconds: None)
    monkeypatch.setattr(limits, "SILENCE", 1)
    monkeypatch.setattr(limits, "TRICKLE", 1)
    found, storage = proxies(cloud)
    found.clear()
    storage.put("shard", DATA)
    found.clear()
    return found


@pytest.fixture
def storage(cloud: str, proxy: Proxy, proxies: Callable[[str], tuple[Proxy, Storage]]) -> Storage:
    """Holds DATA as "shard"."""
    return proxies(cloud)[1]


def downloaded(storage: Storage) -> bytes:
    chunks: list[bytes] = []
    storage.download("shard", chunks.append, size=len(DATA))
    return b"".join(chunks)


def got(storage: Storage) -> bytes:
    return storage.get("shard").data


def got_range(storage: Storage) -> bytes:
    return DATA[:1000] + storage.get("shard", start=1000, stop=700_000).data + DATA[700_000:]


Read = Callable[[Storage], bytes]
READS: list[Read] = [downloaded, got, got_range]


@pytest.mark.parametrize(
    ("cloud", "read", "fault"),
    [
        *(pytest.param("s3", read, FOR_NOW[name], id=f"{read.__name__}-{name}") for read in READS for name in FOR_NOW),
        *(pytest.param(cloud, downloaded, FOR_NOW[name], id=f"{cloud}-{name}") for cloud in OTHERS for name in SOME),
    ],
)
def test_transient_faults_are_invisible(proxy: Proxy, storage: Storage, read: Read, fault: Fault) -> None:
    rule = proxy.add(fault, times=2)
    assert read(storage) == DATA
    assert rule.hits == 2


@pytest.mark.parametrize("fault", FOR_NOW.values(), ids=FOR_NOW)
@pytest.mark.parametrize("read", [downloaded, got_range])
def test_permanent_faults_raise_in_bounded_time(
    proxy: Proxy, storage: Storage, read: Read, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE", 2.0)
    if fault in (FOR_NOW["truncated body"], FOR_NOW["reset in mid-body"], FOR_NOW["stall in mid-body"]):
        proxy.add(fault, times=1)
        fault = cut(0)  # a continued download makes no progress
    rule = proxy.add(fault)
    started = time.monotonic()
    with pytest.raises(mdsx.TransportError, match=r"/set/shard: .*given up after \d+ tries in \d+ s"):
        read(storage)
    assert rule.hits >= 1
    assert 2 <= len(proxy.asked) <= 3 * retry.TRIES
    assert time.monotonic() - started < 60


@everywhere
def test_an_unreachable_endpoint_raises_naming_it(cloud: str, proxy: Proxy, storage: Storage) -> None:
    with proxy.down():
        for read in READS:
            with pytest.raises(mdsx.TransportError, match=f"given up after 8 tries.*{POINTERS[cloud]}") as caught:
                read(storage)
            assert str(proxy.server_port) in str(caught.value)
    assert downloaded(storage) == DATA


@everywhere
def test_a_restart_of_the_server_is_invisible(proxy: Proxy, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = proxy.down()
    outage.__enter__()

    def back(failures: int) -> None:
        if failures == 5:
            outage.__exit__(None, None, None)

    monkeypatch.setattr(retry, "pause", back)
    assert got(storage) == DATA


def test_many_simultaneous_failures_are_each_retried(proxy: Proxy, storage: Storage) -> None:
    """botocore's own retries have one budget for all requests of a client, of 100 retries."""
    for _ in range(40):
        rule = proxy.add(status(503, "SlowDown"), times=5)
        assert storage.get("shard", stop=10).data == DATA[:10]
        assert rule.hits == 5


@everywhere
def test_a_broken_download_continues_at_its_last_byte(proxy: Proxy, storage: Storage) -> None:
    proxy.add(cut(0.25), times=1)
    assert downloaded(storage) == DATA
    assert [asked.range for asked in proxy.asked] == ["", f"bytes={len(DATA) // 4}-"]


def test_a_repeatedly_broken_download_completes_if_it_progresses(proxy: Proxy, storage: Storage) -> None:
    rule = proxy.add(lambda exchange: exchange.send(exchange.forward(), stop=50_000))
    assert downloaded(storage) == DATA
    assert rule.hits == -(-len(DATA) // 50_000)


def test_one_byte_per_try_is_no_progress(proxy: Proxy, storage: Storage) -> None:
    rule = proxy.add(lambda exchange: exchange.send(exchange.forward(), stop=1))
    with pytest.raises(mdsx.TruncatedError, match="shard"):
        downloaded(storage)
    assert rule.hits == retry.TRIES


def test_a_slow_link_does_not_raise(proxy: Proxy, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download with enough bytes a second may take far longer than the limit for a trickle."""
    monkeypatch.setattr(limits, "TRICKLE", 0.5)
    monkeypatch.setattr(limits, "LEAST", 20_000)
    rule = proxy.add(trickle(0.05, 0, 2**15))
    assert downloaded(storage) == DATA
    assert rule.hits == 1


def test_a_failing_sink_raises_its_own_error(proxy: Proxy, storage: Storage) -> None:
    """If the disk of a download is full, the error says so immediately."""

    def full(chunk: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        storage.download("shard", full, size=len(DATA))
    assert len(proxy.asked) == 1


def test_ctrl_c_during_a_fork_that_waits_for_connections_is_not_lost(proxy: Proxy, storage: Storage) -> None:
    proxy.add(stall(None))

    def fork() -> None:
        storage.connect("shard", 1)
        for delay in (0.2, 0.4):
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert forked(int) == 0
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        fork()


# --- the wrong bytes


@everywhere
def test_a_server_may_ignore_ranges(proxy: Proxy, storage: Storage) -> None:
    proxy.add(ignored_range, when=lambda exchange: exchange.range != "")
    proxy.add(cut(0.4), times=1)
    assert storage.get("shard", start=400_000, stop=400_010).data == DATA[400_000:400_010]
    assert downloaded(storage) == DATA


@everywhere
def test_a_wrong_range_is_retried_then_raises(proxy: Proxy, storage: Storage) -> None:
    rule = proxy.add(other_range(admitted=True), times=2)
    assert storage.get("shard", start=100, stop=110).data == DATA[100:110]
    assert rule.hits == 2
    rule.times = None
    with pytest.raises(mdsx.TransportError, match="shard: the server sent another range; given up after"):
        storage.get("shard", start=100, stop=110)


@pytest.mark.parametrize("fault", [other_range(admitted=False), flip()])
def test_wrong_bytes_with_right_headers_are_not_detected(proxy: Proxy, storage: Storage, fault: Fault) -> None:
    """Checksums in a higher layer detect them: see tests/shards."""
    proxy.add(fault)
    assert storage.get("shard", start=100, stop=110).data != DATA[100:110]


@everywhere
def test_a_replaced_object_is_noticed_without_a_condition(proxy: Proxy, storage: Storage) -> None:
    first = storage.get("shard", start=0, stop=10)
    proxy.add(replaced(DATA[::-1]))
    with pytest.raises(mdsx.ChangedError, match="/set/shard"):
        storage.get("shard", start=10, stop=20, etag=first.etag)


@everywhere
def test_an_object_replaced_during_a_download_is_noticed(proxy: Proxy, storage: Storage) -> None:
    proxy.add(cut(0.4), times=1)
    proxy.add(replaced(DATA[::-1]))
    with pytest.raises(mdsx.ChangedError, match="/set/shard"):
        downloaded(storage)


@everywhere
def test_an_object_of_another_size_is_noticed(proxy: Proxy, storage: Storage) -> None:
    for data, kind in ((DATA + b"more", mdsx.ChangedError), (DATA[:-1], mdsx.TruncatedError)):
        proxy.add(replaced(data), times=1)
        with pytest.raises(kind, match=r"/set/shard: .*another size"):
            downloaded(storage)


# --- refusals


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (status(403, "ExpiredToken"), mdsx.ForbiddenError),
        (status(400, "ExpiredToken"), mdsx.ForbiddenError),
        (status(401, "Unauthorized"), mdsx.ForbiddenError),
        (status(404, "NoSuchKey"), mdsx.MissingError),
        (status(412, "PreconditionFailed"), mdsx.ChangedError),
    ],
)
def test_refusals_are_not_retried_and_name_the_url(
    proxy: Proxy, storage: Storage, fault: Fault, error: type[mdsx.MdsxError]
) -> None:
    proxy.add(fault)
    for read in READS:
        proxy.asked.clear()
        with pytest.raises(error, match="/set/shard") as caught:
            read(storage)
        assert len(proxy.asked) == 1
        assert proxy.server.secret not in str(caught.value)
        assert "Signature" not in str(caught.value)


def test_missing_credentials_raise_with_advice(proxy: Proxy, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(mdsx.ForbiddenError, match="AWS_ACCESS_KEY_ID"):
        open_storage(storage.url).get("shard")


# --- the other verbs


@everywhere
@pytest.mark.parametrize("fault", [reset(None), lost, status(500, "InternalError"), status(503, "SlowDown")])
def test_writing_listing_and_deleting_are_retried(cloud: str, proxy: Proxy, storage: Storage, fault: Fault) -> None:
    verbs: list[tuple[str, Callable[[], object]]] = [
        ("POST" if cloud == "gs" else "PUT", lambda: storage.put("other", DATA)),
        ("GET", lambda: [entry.key for entry in storage.list()]),
        ("DELETE", lambda: storage.delete("other")),
    ]
    for method, verb in verbs:
        rule = proxy.add(fault, method=method, times=2)
        found = verb()
        assert rule.hits == 2
        assert found in (None, ["other", "shard"])
    assert [entry.key for entry in storage.list()] == ["shard"]


def test_a_refused_upload_raises_naming_the_url(proxy: Proxy, storage: Storage) -> None:
    proxy.add(status(403, "AccessDenied"), method="PUT")
    with pytest.raises(mdsx.ForbiddenError, match="/set/other"):
        storage.put("other", DATA)
