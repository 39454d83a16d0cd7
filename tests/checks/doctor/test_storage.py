"""What the doctor finds wrong with a storage: each set-up is broken for real, and each advice names the way out."""

from __future__ import annotations

import socket
import sys
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from mdsx.checks.doctor import Job, storage
from mdsx.checks.doctor.endpoint import check_clock, check_region, reach
from mdsx.errors import TransportError
from mdsx.secret import redacted
from mdsx.storage import open_storage
from mdsx.storage.remote import RemoteStorage, limits
from tests.checks.doctor.conftest import Examine, Examined, always, problems
from tests.storage.tls import PEM, tls_server
from tools.link import Link
from tools.servers.s3 import S3Server

CHECKS = {
    "credentials", "endpoint", "clock", "list", "read", "write", "latency", "index", "shard size", "shards",
    "throughput", "recommendation", "cache", "locks", "space", "descriptors", "shared memory",
}  # fmt: skip


def said(found: Examined, check: str) -> str:
    return f"{found[check].found} -> {found[check].advice}"


def test_an_undamaged_set_up_has_no_finding(examined: Examine, corpus: str) -> None:
    found = examined(corpus, write=True)
    assert {check: finding for check, finding in found.items() if finding.state != "ok"} == {}
    assert set(found) == CHECKS
    assert found["credentials"].found == "the environment (AWS_ACCESS_KEY_ID); the access key ends in y-id"
    assert [entry.key for entry in open_storage(corpus).list("mdsx-")] == []


@pytest.mark.parametrize(("cloud", "identity"), [("gs", "none: requests are anonymous"), ("az", "account")])
def test_servers_of_other_clouds_are_recognised(
    examined: Examine, cloud: str, identity: str, request: pytest.FixtureRequest
) -> None:
    url = f"{request.getfixturevalue(f'{cloud}_url')}/x"
    found = examined(url, write=True)
    assert problems(found) == set()
    assert {found[check].state for check in ("endpoint", "clock", "list", "read", "write")} == {"ok"}
    assert found["credentials"].found.startswith(identity)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("access_key_id", "does not know the access key: check AWS_ACCESS_KEY_ID"),
        ("secret_access_key", "does not belong to the access key: check AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_wrong_keys(examined: Examine, corpus: str, option: str, advice: str) -> None:
    keys = {"access_key_id": S3Server.key, "secret_access_key": S3Server.secret, option: "AKIA-wrong-and-secret"}
    found = examined(corpus, **keys)
    assert problems(found) == {"list", "read"}
    assert advice in said(found, "read")
    assert "the options access_key_id and secret_access_key" in found["credentials"].found
    assert not any(keys["secret_access_key"] in f"{finding}" for finding in found.values())


def test_no_credentials(examined: Examine, corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = examined(corpus)
    assert problems(found) == {"credentials", "list", "read"}
    assert "set AWS_ACCESS_KEY_ID" in said(found, "credentials")


def test_a_profile_is_named(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "credentials"
    path.write_text("[lab]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = hush-hush-hush\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    opened = open_storage("s3://bucket/x", {"profile": "lab"})
    assert isinstance(opened, RemoteStorage)
    assert opened.identity() == "~/.aws/credentials, profile lab; the access key ends in MPLE"
    opened = open_storage("s3://bucket/x", {"profile": "nobody"})
    assert isinstance(opened, RemoteStorage)
    with pytest.raises(TransportError, match="nobody"):
        opened.identity()


@pytest.mark.parametrize(
    ("url", "options", "identity"),
    [
        ("s3://bucket/x", {"anonymous": True}, "none: requests are anonymous"),
        ("https://host/x", {}, "none: requests are anonymous"),
        ("https://ann:hush@host/x", {}, "the user and password in the URL"),
        ("https://ann:hush@host/x", {"token": "hush-hush"}, "the user and password in the URL"),
        ("https://host/x", {"user": "ann", "password": "hush"}, "the options user and password"),
        ("https://host/x?sig=hush-hush", {}, "the signature in the URL"),
        ("https://host/x", {"token": "hush-hush"}, "the option token"),
        ("hf://datasets/a/b", {"token": "hush-hush"}, "the option token"),
        ("hf://datasets/a/b", {"anonymous": True}, "none: requests are anonymous"),
        ("az://c/x", {"account": "lab", "account_key": "aHVzaA=="}, "account lab: the account key of the options"),
    ],
)
def test_an_identity_names_no_secret(url: str, options: dict[str, object], identity: str) -> None:
    opened = open_storage(url, options)
    assert isinstance(opened, RemoteStorage)
    assert opened.identity() == identity


def test_a_bucket_in_another_region(examined: Examine) -> None:
    """AWS answers so at the endpoint of another region."""
    body = b'<?xml version="1.0"?>\n<Error><Code>PermanentRedirect</Code><Message>Use another</Message></Error>'
    with always(301, {"x-amz-bucket-region": "eu-west-1"}, body) as endpoint:
        found = examined(
            "s3://bucket/x", endpoint=endpoint, region="us-east-1", access_key_id="a", secret_access_key="b"
        )
    assert problems(found) == {"region", "list", "read"}
    assert "is in eu-west-1, but requests name us-east-1 -> set AWS_DEFAULT_REGION=eu-west-1" in said(found, "region")
    assert "another region, eu-west-1: PermanentRedirect Use another -> set AWS_DEFAULT_REGION=eu-west-1" in said(
        found, "read"
    )


def test_redirected_requests_are_a_warning(s3: S3Server) -> None:
    opened = open_storage("s3://bucket/x")
    assert isinstance(opened, RemoteStorage)
    (finding,) = check_region(opened, {"x-amz-bucket-region": "eu-west-1"}, works=True)
    assert finding.state == "warning"
    (finding,) = check_region(opened, {"x-amz-bucket-region": "us-east-1"}, works=True)
    assert finding.state == "ok"


def test_no_such_bucket(examined: Examine, s3: S3Server) -> None:
    found = examined("s3://no-such-bucket/x")
    assert problems(found) == {"list", "read"}
    assert "no such bucket" in said(found, "read")
    assert "create it, or check the URL" in said(found, "read")


def test_no_dataset(examined: Examine, corpus: str) -> None:
    found = examined(f"{corpus}/elsewhere")
    assert problems(found) == {"index"}
    assert "check the URL" in said(found, "index")
    assert examined(f"{corpus}/elsewhere", write=True)["index"].state == "warning"


def test_a_clock_that_is_off(examined: Examine) -> None:
    body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
    with always(403, {"Date": formatdate(time.time() - 3600, usegmt=True)}, body) as endpoint:
        found = examined("s3://bucket/x", endpoint=endpoint, access_key_id="a", secret_access_key="b")
    assert problems(found) == {"clock", "list", "read"}
    assert "3,60" in found["clock"].found
    assert "s fast, by the server's -> synchronise it" in said(found, "clock")
    assert "this machine's clock is 60 minutes fast" in said(found, "read")
    assert "synchronise this machine's clock" in said(found, "read")


@pytest.mark.parametrize(
    ("off", "state"), [(0, "ok"), (59, "ok"), (-61, "warning"), (301, "problem"), (-400, "problem")]
)
def test_clocks_are_compared_with_the_date(off: int, state: str) -> None:
    now = 1_790_000_000.0
    (finding,) = check_clock({"Date": formatdate(now - off, usegmt=True)}, now)
    assert (finding.state, finding.figures["seconds"]) == (state, off)
    (finding,) = check_clock({"Date": formatdate(now - off - 900, usegmt=True), "Age": "900"}, now)
    assert finding.state == state
    assert list(check_clock({}, now)) == list(check_clock({"Date": "today"}, now)) == []


@pytest.mark.parametrize(
    ("scheme", "status", "advice"),
    [("gs", 200, "check STORAGE_EMULATOR_HOST"), ("s3", 404, "check AWS_ENDPOINT_URL or the option endpoint")],
)
def test_an_endpoint_that_is_a_web_server(examined: Examine, scheme: str, status: int, advice: str) -> None:
    page = b"<!DOCTYPE html><html><p>Welcome to nginx!<br></html>"
    with always(status, {"Server": "nginx/1.27", "Content-Type": "text/html"}, page) as endpoint:
        found = examined(f"{scheme}://bucket/x", endpoint=endpoint, anonymous="true")
    assert problems(found) == {"endpoint"}
    text = f"does not speak the protocol of {scheme}://; it is 'nginx/1.27' -> {advice}"
    assert text in said(found, "endpoint")


def test_an_endpoint_with_the_bucket_in_it(examined: Examine, s3: S3Server) -> None:
    found = examined("s3://doctor/corpus", endpoint=f"{s3.endpoint}/doctor")
    assert "contains the bucket's name, doctor" in said(found, "endpoint")
    assert "leave out the bucket" in said(found, "endpoint")


def test_tls_that_does_not_fit(examined: Examine, s3: S3Server) -> None:
    with tls_server() as port:
        for endpoint, problem in (
            (s3.endpoint.replace("http://", "https://"), "does not speak TLS -> write http://"),
            (f"http://127.0.0.1:{port}", "the server speaks TLS -> write https://"),
            (f"https://127.0.0.1:{port}", "not trusted: self-signed certificate -> if your own authority signed"),
        ):
            found = examined("gs://bucket/x", endpoint=endpoint, anonymous="true")
            assert problems(found) == {"endpoint"}
            assert problem in said(found, "endpoint")
            assert "AWS_CA_BUNDLE" in said(found, "endpoint") or "trusted" not in problem


def test_an_authority_of_your_own_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    with tls_server() as port:  # which ends each connection after the handshake
        opened = open_storage("s3://bucket/x", {"endpoint": f"https://127.0.0.1:{port}"})
        assert isinstance(opened, RemoteStorage)
        (finding,), _ = reach(opened)
    assert finding.found.startswith(f"https://127.0.0.1:{port}: no answer: ('Connection aborted.'")


def test_silence_and_dead_proxies_are_told_apart(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        opened = open_storage("gs://bucket/x", {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        assert isinstance(opened, RemoteStorage)
        (finding,), _ = reach(opened)
        assert finding.found.endswith(": no answer in 0.2 s")
        assert "check firewalls" in str(finding.advice)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    opened = open_storage("gs://bucket/x", {"endpoint": "http://storage.example"})
    assert isinstance(opened, RemoteStorage)
    (finding,), _ = reach(opened)
    assert finding.found == "http://storage.example: the proxy does not answer"
    assert "check HTTPS_PROXY" in str(finding.advice)


@pytest.mark.parametrize(
    ("url", "endpoint", "problem"),
    [
        ("gs://x", "http://nowhere.invalid", "the host nowhere.invalid is unknown -> correct the host's name"),
        ("gs://x", "http://127.0.0.1:9", "http://127.0.0.1:9: nothing listens on port 9 of 127.0.0.1 -> check"),
        ("s3://x", "no-url", "not configured"),
    ],
)
def test_an_endpoint_that_cannot_be_reached(
    examined: Examine, s3: S3Server, url: str, endpoint: str, problem: str
) -> None:
    found = examined(url, endpoint=endpoint, anonymous="true")
    assert problems(found) == {"endpoint"}
    assert problem in said(found, "endpoint")


def test_a_slow_link(examined: Examine, corpus: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_TRIES", 1)
    monkeypatch.setattr(storage, "_SECONDS", 0.3)
    with Link(s3.endpoint, rtt=0.21, rate=2_000_000) as link:
        found = examined(corpus, Job(world_size=2, batch_size=1000), endpoint=link.endpoint)
        assert problems(found) == {"throughput"}
        assert "; the run needs 20.1 MB/s -> the GPUs would wait" in said(found, "throughput")
        assert 10_000 < found["throughput"].figures["bytes_per_second"] < 6e6
        assert found["latency"].state == "warning"
        assert "train in the region of the bucket" in said(found, "latency")
        opened = open_storage(corpus, {"endpoint": link.endpoint})
        shards = [(entry.key, entry.size) for entry in opened.list("shard.")]
        assert storage.check_throughput(opened, shards, need=None).state == "warning"
        assert storage.check_throughput(opened, shards, need=1e3).state == "ok"


def test_a_listing_that_is_denied_is_a_warning(examined: Examine, corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        from mdsx.errors import ForbiddenError

        raise ForbiddenError("S3 refused: AccessDenied")

    monkeypatch.setattr("mdsx.storage.remote.s3.S3Storage.list", refuse)
    found = examined(corpus)
    assert problems(found) == set()
    assert found["list"].state == "warning"
    assert found["throughput"].state == "ok"


def test_writing_where_nothing_can_be_written(examined: Examine, corpus: str) -> None:
    with always(404, {}, b"no") as server:
        found = examined(f"{server}/x", write=True)
    assert "write to a disk, s3://" in said(found, "write")
    assert found["list"].state == "ok"


def test_a_missing_package_is_named(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.exceptions", None)
    with always(404, {}, b"{}") as endpoint:
        found = examined("gs://bucket/x", endpoint=endpoint)
    assert problems(found) == {"credentials", "list", "read"}
    assert "pip install 'mdsx[gs]'" in said(found, "list")


def test_a_disk_is_a_storage_too(examined: Examine, tmp_path: Path) -> None:
    found = examined(tmp_path / "data", write=True)
    assert problems(found) == set()
    assert found["write"].state == "ok"
    assert list(tmp_path.glob("data/*")) == []
    assert "endpoint" not in found
    assert redacted(found["index"].found) == "there is no finished dataset here yet"


def test_a_folder_without_an_index_says_what_lies_in_it(examined: Examine, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.tar").touch()
    found = examined(tmp_path)["index"]
    assert found.state == "problem"
    assert f"there are 12 *.tar files here: make an index of them with `mdsx index tar {tmp_path}`" in str(found.advice)
