"""An S3 that misbehaves: what is worth another try is invisible, the rest is an error that names the URL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import mdsx
from mdsx.storage import open_storage, s3
from mdsx.storage.s3 import S3Storage
from tests.storage.faults import Answer, FaultyServer, Request

DATA = bytes(range(256)) * 16 * 1024  # 4 MiB, several chunks


@contextmanager
def faulty(
    monkeypatch: pytest.MonkeyPatch, *faults: Answer | None, data: bytes = DATA
) -> Iterator[tuple[S3Storage, FaultyServer]]:
    monkeypatch.setattr(s3, "_pause", lambda failures: None)
    monkeypatch.setattr(s3, "_TIMEOUT", 0.5)
    for name, value in {
        "ACCESS_KEY_ID": "key-of-someone",
        "SECRET_ACCESS_KEY": "a-secret",
        "DEFAULT_REGION": "x",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with FaultyServer(data, list(faults)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        storage = open_storage("s3://bucket/set")
        assert isinstance(storage, S3Storage)
        yield storage, server


def downloaded(storage: S3Storage) -> bytes:
    chunks: list[bytes] = []
    storage.download("shard", chunks.append, size=len(DATA))
    return b"".join(chunks)


def cut(request: Request) -> None:
    """Announces all, sends a part, closes."""
    request.send(200, request.server.data[:1_500_000], length=len(request.server.data))
    request.close_connection = True


def reset(request: Request) -> None:
    request.send(200, request.server.data[:1_500_000], length=len(request.server.data))
    request.reset()


def busy(request: Request) -> None:
    request.error(503, "SlowDown")


def broken(request: Request) -> None:
    request.error(500, "InternalError")


def whole(request: Request) -> None:
    """Ignores Range and If-Match."""
    request.send(200, request.server.data)


def stall(request: Request) -> None:
    request.send(200, request.server.data[:100_000], length=len(request.server.data))
    request.server.stalled.wait(5)  # type: ignore[attr-defined]  # set where the test ends


@pytest.mark.parametrize("fault", [cut, reset, busy, broken])
@pytest.mark.parametrize("verb", ["get", "download"])
def test_what_is_worth_another_try_is_invisible(monkeypatch: pytest.MonkeyPatch, fault: Answer, verb: str) -> None:
    with faulty(monkeypatch, fault, fault) as (storage, server):
        assert (storage.get("shard").data if verb == "get" else downloaded(storage)) == DATA
        assert len(server.asked) >= 2


def test_a_broken_download_goes_on_where_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(monkeypatch, cut) as (storage, server):
        assert downloaded(storage) == DATA
        assert server.asked == ["", "bytes=1500000-"]


def test_a_server_that_ignores_ranges_gives_the_right_bytes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(monkeypatch, whole, cut, whole) as (storage, _):
        assert storage.get("shard", start=1_200_000, stop=1_200_010).data == DATA[1_200_000:1_200_010]
        assert downloaded(storage) == DATA


def test_what_keeps_breaking_is_an_error_that_names_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(request: Request) -> None:
        request.send(200, b"", length=len(DATA))
        request.close_connection = True

    with faulty(monkeypatch, *[nothing] * 40) as (storage, server):
        for use in (lambda: storage.get("shard"), lambda: downloaded(storage)):
            before = len(server.asked)
            with pytest.raises(mdsx.TruncatedError, match="s3://bucket/set/shard"):
                use()
            assert 2 <= len(server.asked) - before <= 10


def test_a_server_that_stays_busy_is_an_error_after_a_bounded_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    with faulty(monkeypatch, *[busy] * 40) as (storage, server):
        with pytest.raises(mdsx.TransportError, match=r"s3://bucket/set/shard.*503"):
            storage.get("shard")
        assert len(server.asked) <= 6


def test_an_object_that_is_replaced_is_noticed_also_where_if_match_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(monkeypatch, None, whole) as (storage, server):
        first = storage.get("shard", start=0, stop=10)
        server.data = DATA[::-1]
        with pytest.raises(mdsx.ChangedError, match="s3://bucket/set/shard"):
            storage.get("shard", start=10, stop=20, etag=first.etag)


def test_an_object_that_is_replaced_while_its_download_is_broken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_and_replace(request: Request) -> None:
        cut(request)
        request.server.data = DATA[::-1]

    with faulty(monkeypatch, cut_and_replace, whole) as (storage, _), pytest.raises(mdsx.ChangedError):
        downloaded(storage)


def test_another_range_than_was_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(request: Request) -> None:
        request.send(206, DATA[:10], {"Content-Range": f"bytes 0-9/{len(DATA)}"})

    with faulty(monkeypatch, wrong) as (storage, _), pytest.raises(mdsx.TransportError, match="another range"):
        storage.get("shard", start=100, stop=110)


def test_refusals_are_not_tried_again_and_tell_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(request: Request) -> None:
        request.error(403, "ExpiredToken")

    with faulty(monkeypatch, forbidden) as (storage, server):
        with pytest.raises(mdsx.ForbiddenError, match="credentials") as caught:
            storage.get("shard")
        assert len(server.asked) == 1
        assert "a-secret" not in str(caught.value)


def test_nobody_there_is_an_error_that_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    with faulty(monkeypatch) as (storage, server):
        endpoint = server.endpoint
    for use in (lambda: storage.get("shard"), lambda: downloaded(storage)):
        with pytest.raises(mdsx.TransportError, match="AWS_ENDPOINT_URL") as caught:
            use()
        assert endpoint in str(caught.value)


def test_without_credentials_the_error_says_how_to_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(monkeypatch) as (storage, _):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/dev/null")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(mdsx.ForbiddenError, match="AWS_ACCESS_KEY_ID"):
            storage.get("shard")


def test_a_stall_ends_with_the_timeout_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(monkeypatch, stall) as (storage, server):
        server.stalled = threading.Event()  # type: ignore[attr-defined]
        assert downloaded(storage) == DATA
        server.stalled.set()  # type: ignore[attr-defined]


def test_credentials_in_a_url_are_never_shown() -> None:
    storage = open_storage("s3://key:secret@bucket/set")
    assert storage.url == "s3://bucket/set"
    assert "secret" not in repr(storage)
