"""Mistakes with a bucket, against a real S3 server: credentials, regions, endpoints, proxies and clocks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

import mdsx
from tests import fork_server
from tests.storage.tls import tls_server
from tools.servers.s3 import S3Server

REAL = {"AWS_ENDPOINT_URL": "", "AWS_DEFAULT_REGION": "eu-west-1", "NO_PROXY": ""}
"""In place of the server's variables: those of a job that reads from AWS."""


def opening(url: str, changes: dict[str, str]) -> str:
    """Open a dataset in an environment with `changes`; "" unsets a variable. Return what a newcomer gets."""
    os.environ.update(changes)
    for name in [name for name, value in os.environ.items() if not value]:
        del os.environ[name]
    try:
        return f"{len(mdsx.Dataset(url))} samples"
    except mdsx.MdsxError as error:
        return f"{type(error).__name__}: {error}"


@contextmanager
def answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """Yield the URL of a server, or a proxy, that answers every request alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  http.server's name

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def remote(s3: S3Server) -> str:
    """A dataset of 100 samples in a bucket, beside which there are a folder of tars and one that is being written."""
    bucket = s3.make_bucket("mistakes")
    with mdsx.Writer(f"{bucket}/data", {"x": "int64"}, shard_size=200) as out:
        out.write_batch({"x": list(range(100))})
    (s3.directory / "mistakes" / "tars").mkdir()
    (s3.directory / "mistakes" / "tars" / "a.tar").write_bytes(bytes(1024))
    return bucket


def opened(url: str, **changes: str) -> str:
    return fork_server.call(opening, url, changes)


@pytest.mark.parametrize("slashes", ["data/", "data//", "/data"])
def test_extra_slashes_change_nothing(remote: str, slashes: str) -> None:
    assert opened(f"{remote}/{slashes}") == "100 samples"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("dta", "MissingError: s3://mistakes/dta: no dataset is here: "),
        ("tars", "there is 1 *.tar file here: make an index of them with `mdsx index tar s3://mistakes/tars`"),
        ("data/index.json", "give the dataset's URL, without /index.json: s3://mistakes/data"),
    ],
)
def test_another_place_in_the_bucket(remote: str, place: str, message: str) -> None:
    assert message in opened(f"{remote}/{place}")


def test_a_dataset_that_is_still_written_to_a_bucket(remote: str) -> None:
    with mdsx.Writer(f"{remote}/growing", {"x": "int64"}, shard_size=200) as out:
        out.write_batch({"x": list(range(1000))})
        assert "the index is written last: wait for the writer; if it died" in opened(f"{remote}/growing")
    assert opened(f"{remote}/growing") == "1000 samples"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no credentials: .*`aws configure`.*anonymous"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "Partial credentials found in env, missing: AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "another"}, "does not know the access key: check AWS_ACCESS_KEY_ID or the profile"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "does not belong to the access key: check AWS_SECRET_ACCESS_KEY"),
        ({"AWS_PROFILE": "mine"}, r"The config profile \(mine\) could not be found; set .*AWS_PROFILE"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "must be a complete URL, like http://localhost:9000"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "no answer: .*127.0.0.1:9.*check AWS_ENDPOINT_URL"),
    ],
)  # fmt: skip
def test_credentials_and_endpoints(remote: str, changes: dict[str, str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(opened(f"{remote}/data", **changes))


def test_a_bucket_that_does_not_exist(s3: S3Server) -> None:
    assert "no such bucket: " in opened("s3://mistake/data")
    assert "create it, or check the URL and AWS_ENDPOINT_URL" in opened("s3://mistake/data")


def test_https_for_a_server_without_tls_and_a_certificate_nobody_knows(s3: S3Server, remote: str) -> None:
    found = opened(f"{remote}/data", AWS_ENDPOINT_URL=s3.endpoint.replace("http:", "https:"))
    assert "the server does not speak TLS: write http:// in AWS_ENDPOINT_URL" in found
    with tls_server() as port:
        found = opened(f"{remote}/data", AWS_ENDPOINT_URL=f"https://127.0.0.1:{port}")
    assert "set AWS_CA_BUNDLE to its file" in found


# --- regions


def test_no_region_where_none_is_needed(remote: str) -> None:
    assert opened(f"{remote}/data", AWS_DEFAULT_REGION="") == "100 samples"


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ("eu west 1", "Provided region_name 'eu west 1' doesn't match a supported format"),
        ("eu-west1", "no answer: .*bucket.s3.eu-west1.amazonaws.com"),
    ],
)
def test_a_wrong_region(region: str, message: str) -> None:
    changes = {**REAL, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "HTTPS_PROXY": ""}
    found = opened("s3://bucket/data", **{**changes, "AWS_DEFAULT_REGION": region})
    assert "set AWS_DEFAULT_REGION or the option region to the bucket's region, such as eu-west-1" in found
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(found)


def test_the_region_in_a_variable_that_boto3_does_not_read() -> None:
    """Other programs read AWS_REGION. AWS refuses a request to another region like this."""
    moved = b"<Error><Code>PermanentRedirect</Code><Message>The bucket must be addressed elsewhere</Message></Error>"
    with answering(301, {"x-amz-bucket-region": "eu-west-1", "Content-Type": "application/xml"}, moved) as endpoint:
        keys = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        found = opened("s3://bucket/data", **keys, AWS_DEFAULT_REGION="", AWS_REGION="eu-west-1")
    assert "the bucket is in another region, eu-west-1" in found
    assert "set AWS_DEFAULT_REGION=eu-west-1 or the option region (boto3 does not read AWS_REGION)" in found


# --- between here and there


def test_a_proxy_that_is_down_or_refuses(remote: str) -> None:
    way_out = "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY lists hosts to reach without a proxy"
    found = opened(f"{remote}/data", HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="")
    assert "Failed to connect to proxy" in found
    assert way_out in found
    with answering(403, {"Content-Type": "text/html"}, b"<html>Blocked by policy</html>") as proxy:
        found = opened(f"{remote}/data", HTTP_PROXY=proxy, NO_PROXY="")
    assert "S3 refused: status 403, without S3's reason; a proxy or a gateway may have answered in place of S3" in found
    assert way_out in found
    with answering(200, {"Content-Type": "text/html"}, b"<html>Accept our terms</html>") as proxy:
        found = opened(f"{remote}/data", HTTP_PROXY=proxy, NO_PROXY="")
    assert "this is no mdsx index" in found
    assert "this is a web page: check the URL" in found


CLOCK = """
import datetime, sys, time
seconds, real, Right = float(sys.argv[2]), time.time, datetime.datetime
class Wrong(Right):
    __slots__ = ()
    @classmethod
    def now(cls, tz=None):
        return Right.now(tz) + datetime.timedelta(seconds=seconds)
    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime, time.time = Wrong, lambda: real() + seconds
import mdsx
mdsx.Dataset(sys.argv[1])
"""


@pytest.mark.parametrize(("seconds", "how"), [(7200, "fast"), (-7200, "slow")])
def test_a_clock_that_is_wrong(remote: str, seconds: int, how: str) -> None:
    """The clock of a process that reads; the server's is right, and refuses what it has signed."""
    program = [sys.executable, "-c", CLOCK, f"{remote}/data", str(seconds)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    found = done.stderr.splitlines()[-1]
    assert found.startswith("mdsx.errors.ForbiddenError: s3://mistakes/data/index.json: S3 refused: ")
    assert f"this machine's clock is 120 minutes {how}; synchronise " in found
    assert "`timedatectl set-ntp true`" in found
