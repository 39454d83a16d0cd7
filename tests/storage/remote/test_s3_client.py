"""One client for each configuration; the first failure of an endpoint, and later ones."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.storage import open_storage, retry
from mdsx.storage.remote.s3_client import S3Options, shared_client
from mdsx.storage.retry import answered
from tests.forks import forked
from tests.storage.remote.test_web import answering
from tests.storage.tls import tls_server
from tools.fault_proxy import Exchange, Proxy, status
from tools.servers.s3 import S3Server


def refused_port() -> int:
    """Return a port without a server."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
def nobody(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is a port that refuses, and had no server of an earlier test."""
    endpoints = (f"http://127.0.0.1:{port}" for port in iter(refused_port, None))
    never_answered = next(each for each in endpoints if not any(each in name for name in answered()))
    monkeypatch.setenv("AWS_ENDPOINT_URL", never_answered)


@contextmanager
def soon() -> Iterator[None]:
    """Assert that the body takes less than two seconds, plus one second to make a client on a busy machine."""
    shared_client(S3Options())
    started = time.monotonic()
    yield
    assert time.monotonic() - started < 2


# --- one client


def test_storages_of_one_configuration_share_connections(proxy: Proxy, s3_url: str) -> None:
    addresses = set[object]()

    def note(exchange: Exchange) -> bool:
        addresses.add(exchange.client_address)
        return False

    proxy.add(status(500, "InternalError"), method="*", when=note)
    for number in range(5):
        open_storage(f"{s3_url}/{number}").put("key", b"1")
    assert len(addresses) == 1


def test_concurrent_threads_share_one_client(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-2")  # a configuration without a client
    with ThreadPoolExecutor(8) as threads:
        assert len({id(client) for client in threads.map(lambda _: shared_client(S3Options()), range(16))}) == 1


def test_a_changed_environment_counts_for_the_next_storage(
    proxy: Proxy, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(s3_url).put("key", b"1")
    asked = len(proxy.asked)
    assert asked
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.server.endpoint)
    assert open_storage(s3_url).get("key").data == b"1"
    assert len(proxy.asked) == asked


def test_a_forked_child_makes_its_own_client(s3: S3Server) -> None:
    ours = shared_client(S3Options())
    child = os.fork()
    if child == 0:
        os._exit(0 if shared_client(S3Options()) is not ours else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert shared_client(S3Options()) is ours


def test_renewed_credentials_apply_immediately(
    s3: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test renews them in the environment, in boto3's file, and in a program's output."""
    open_storage(s3_url).put("key", b"1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file, config, answer = (tmp_path / name for name in ("credentials", "config", "answer"))

    def in_environment(secret: str) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)

    def in_file(secret: str) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        file.write_text(f"[default]\naws_access_key_id={s3.key}\naws_secret_access_key={secret}\n")

    def from_program(secret: str) -> None:
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        config.write_text(f"[default]\ncredential_process = cat {answer}\n")
        credentials = {"Version": 1, "AccessKeyId": s3.key, "SecretAccessKey": secret}
        answer.write_text(json.dumps(credentials))

    ways: list[Callable[[str], None]] = [in_environment, in_file, from_program]
    for give in ways:
        monkeypatch.undo()
        for name, value in s3.env().items():
            monkeypatch.setenv(name, value)
        if give is from_program:
            monkeypatch.delenv("AWS_ACCESS_KEY_ID")
            monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        give("wrong")
        storage = open_storage(s3_url)
        with pytest.raises(mdsx.ForbiddenError):
            storage.get("key")
        if give is from_program:
            answer.write_text(answer.read_text().replace("wrong", s3.secret))
        elif give is in_file:
            file.write_text(file.read_text().replace("wrong", s3.secret))
        else:
            give(s3.secret)
        assert storage.get("key").data == b"1"


# --- the first contact


def test_a_refused_port_is_reported_soon(nobody: None) -> None:
    with soon(), pytest.raises(mdsx.TransportError, match=r"on first contact.*AWS_ENDPOINT_URL.*connect_timeout"):
        mdsx.Dataset("s3://bucket/data")


def test_an_unknown_host_is_reported_soon(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://nowhere.invalid:9000")
    with soon(), pytest.raises(mdsx.TransportError, match=r"nowhere\.invalid.*on first contact"):
        mdsx.Dataset("s3://bucket/data")


def test_tls_mismatches_are_reported_soon(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with tls_server() as port:
        for endpoint, problem in (
            (s3.endpoint.replace("http://", "https://"), "SSL"),
            (f"http://127.0.0.1:{port}", "expects https://"),
            (f"https://127.0.0.1:{port}", "CERTIFICATE_VERIFY_FAILED"),
        ):
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            with soon(), pytest.raises(mdsx.TransportError, match=f"{problem}.*on first contact"):
                mdsx.Dataset("s3://bucket/data")


def test_connect_timeout_bounds_the_first_contact(nobody: None) -> None:
    with pytest.raises(mdsx.TransportError, match="1 try, on first contact"):
        open_storage("s3://bucket/data", {"connect_timeout": 0}).get("key")
    started = time.monotonic()
    with pytest.raises(mdsx.TransportError, match=r"\d tries in \d s, on first contact"):
        open_storage("s3://bucket/data", {"connect_timeout": 2.5}).get("key")
    assert time.monotonic() - started >= 0.9


def test_an_endpoint_that_comes_up_in_time_is_read(s3: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_storage(s3_url).put("key", b"1")
    with Proxy(s3) as late:
        outage = late.down()
        outage.__enter__()
        monkeypatch.setenv("AWS_ENDPOINT_URL", late.endpoint)
        pause = retry.pause

        def up_then(failures: int) -> None:
            monkeypatch.setattr(retry, "pause", pause)
            outage.__exit__(None, None, None)

        monkeypatch.setattr(retry, "pause", up_then)
        assert open_storage(s3_url, {"connect_timeout": 30}).get("key").data == b"1"


@pytest.mark.parametrize("value", [-1, True, "five", float("nan"), float("inf")])
def test_a_connect_timeout_is_a_number_of_seconds(value: object, tmp_path: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="connect_timeout"):
        mdsx.Dataset(tmp_path, storage_options={"connect_timeout": value})


# --- buckets that do not exist


def test_every_entry_point_names_a_missing_bucket(s3: S3Server) -> None:
    url = "s3://no-such-bucket/data"
    doors: list[Callable[[], object]] = [
        lambda: mdsx.Dataset(url),
        lambda: mdsx.Writer(url, {"a": "int64"}),
        lambda: mdsx.Writer(url, {"a": "int64"}, resume=True),
        lambda: mdsx.merge(url),
        lambda: mdsx.verify(url),
        lambda: mdsx.repair(url),
    ]
    for door in doors:
        with soon(), pytest.raises(mdsx.MissingError, match="no such bucket: NoSuchBucket") as raised:
            door()
        assert raised.value.file in (url, f"{url}/index.json"), "not the prefix of a listing"


def test_a_bucket_that_answered_is_retried_until_the_deadline(proxy: Proxy, s3_url: str) -> None:
    storage = open_storage(s3_url)
    storage.put("key", b"1")
    rule = proxy.add(status(404, "NoSuchBucket"), times=5)
    assert storage.get("key").data == b"1"
    assert rule.hits == 5
    rule.times = None
    with pytest.raises(mdsx.MissingError, match=f"NoSuchBucket.*given up after {retry.TRIES} tries"):
        storage.get("key")


def test_a_url_with_a_version_raises_with_advice() -> None:
    with pytest.raises(mdsx.UsageError, match=r"without a query or a fragment; remove .* never a versionId") as raised:
        open_storage("s3://bucket/data?versionId=secret")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("warm", [False, True])
def test_too_many_open_files_are_named_with_their_limit(s3_url: str, warm: bool) -> None:
    open_storage(s3_url).put("key", b"1")

    def limited() -> str:
        storage = open_storage(s3_url)
        if warm:  # the client is made, but its connection is closed
            storage.get("key")
            shared_client(S3Options()).boto.close()
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(mdsx.TransportError) as caught:
            storage.get("key")
        return str(caught.value)

    error = forked(limited)
    assert "the process has too many open files (expected at most 100" in error
    assert "ulimit -n" in error


# --- once an endpoint has answered


def test_an_outage_is_retried_with_one_log_line(proxy: Proxy, s3_url: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = open_storage(s3_url)
    storage.put("key", b"1")
    with caplog.at_level(logging.WARNING, "mdsx"):
        with proxy.down():
            for _ in range(2):
                with pytest.raises(mdsx.TransportError, match=f"given up after {retry.TRIES} tries"):
                    storage.get("key")
        storage.get("key")
    lost, found = caplog.messages
    assert "/key: no answer" in lost
    assert "mdsx retries" in lost
    assert "answers again" in found


READER = """
import pickle, sys
storage = pickle.load(sys.stdin.buffer)
print(storage.get("key").data.decode())
"""


def test_a_worker_of_a_process_with_success_retries_too(proxy: Proxy, s3_url: str) -> None:
    storage = open_storage(s3_url)
    storage.put("key", b"undamaged")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", READER], **pipes) as worker:  # type: ignore[call-overload]
        with proxy.down():
            worker.stdin.write(pickle.dumps(storage))
            worker.stdin.close()
            line = worker.stderr.readline()
            assert b"mdsx retries" in line, line + worker.stderr.read()
        assert worker.stdout.read() == b"undamaged\n"


BELIEVER = """
import sys
from mdsx.storage import open_storage
from mdsx.storage.retry import believe
believe(sys.argv[2:])
print(open_storage(sys.argv[1]).get("key").data.decode())
"""


def test_a_spawned_process_can_inherit_known_endpoints(proxy: Proxy, s3_url: str) -> None:
    open_storage(s3_url).put("key", b"undamaged")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", BELIEVER, s3_url, *answered()], **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.read() == "undamaged\n"
    with proxy.down(), subprocess.Popen([sys.executable, "-c", BELIEVER, s3_url, *answered()], **pipes) as child:
        assert child.stderr is not None
        assert "mdsx retries" in child.stderr.readline()
        child.kill()


def test_a_fork_of_a_process_with_success_retries_too(proxy: Proxy, s3_url: str) -> None:
    storage = open_storage(s3_url)
    storage.put("key", b"1")
    with proxy.down():
        child = os.fork()
        if child == 0:
            try:
                storage.get("key")
            except mdsx.TransportError as error:
                os._exit(0 if f"after {retry.TRIES} tries" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("header", "value"), [("Last-Modified", "soon"), ("Content-Length", "many")])
def test_an_answer_that_is_not_one_of_s3_raises(header: str, value: str) -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header(header, value)
        request.end_headers()

    with (
        answering(reply) as url,
        pytest.raises(mdsx.TransportError, match="set/x: the endpoint did not return an S3 response"),
    ):
        open_storage("s3://bucket/set", {"endpoint": url, "anonymous": True}).get("x")


def test_a_range_without_a_length_of_its_body_is_read() -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response(206)
        request.send_header("Content-Range", "bytes 5-8/100")
        request.end_headers()
        request.wfile.write(b"5678")

    with answering(reply) as url:
        storage = open_storage("s3://bucket/set", {"endpoint": url, "anonymous": True})
        assert storage.get("x", start=5, stop=9).data == b"5678"
