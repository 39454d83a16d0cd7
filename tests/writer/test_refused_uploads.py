"""S3 refuses a request: an error that names the object and the way out, no index; then a resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from mdsx.errors import ForbiddenError, MdsxError, TransportError
from mdsx.storage.remote import s3 as s3_module
from tests.conftest import Often
from tests.writer.jobs import contents, write
from tests.writer.test_failing_disk import attempt
from tests.writer.test_s3 import objects
from tests.writer.watch import Bucket
from tools.fault_proxy import Fault, Proxy, lost, reset, status
from tools.servers.s3 import S3Server

COUNT = 20  # samples: three shards, each in three parts
REFUSALS: dict[str, tuple[Fault, type[MdsxError], str]] = {
    "no rights": (status(403, "AccessDenied"), ForbiddenError, "credentials"),
    "expired": (status(400, "ExpiredToken"), ForbiddenError, "credentials"),
    "quota": (status(403, "QuotaExceeded"), TransportError, "free some space or raise the quota"),
    "full": (status(507, "InsufficientStorage"), TransportError, "free some space or raise the quota"),
    "broken": (status(500, "InternalError"), TransportError, "given up after"),
    "reset": (reset(None), TransportError, "given up after"),
}


@pytest.fixture(autouse=True)
def uploads_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "MULTIPART", 400)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_resume_continues_after_refused_requests(
    name: str, s3: S3Server, proxy: Proxy, s3_url: str, tmp_path: Path, often: Often
) -> None:
    """Aborting a multipart upload is refused too: the resume aborts it."""
    fault, kind, way_out = REFUSALS[name]
    write(tmp_path, COUNT)
    write(s3_url, COUNT)
    requests = len(proxy.asked)
    assert requests > 25
    for skip in range(list(REFUSALS).index(name), requests, often(40, long=1)):
        url = s3.make_bucket(f"{s3_url[5:]}-{skip}")
        proxy.clear()
        proxy.add(fault, method="*", skip=skip)
        error = attempt(partial(write, url, COUNT))
        assert isinstance(error, kind)
        assert isinstance(error, ForbiddenError) == (kind is ForbiddenError)
        assert str(error).startswith(url)
        assert way_out in str(error)
        proxy.clear()
        if "index.json" in objects(url):
            assert objects(url).keys() - contents(tmp_path).keys() <= {"_mdsx/writer.json"}
        write(url, COUNT)
        assert objects(url) == contents(tmp_path)
        assert not Bucket(url).unfinished()


@pytest.mark.parametrize("fault", [reset(None), lost, status(503, "SlowDown")], ids=["reset", "lost", "503"])
def test_a_single_failure_is_invisible_at_any_request(
    fault: Fault, s3: S3Server, proxy: Proxy, s3_url: str, tmp_path: Path, often: Often
) -> None:
    """Even if a request succeeded and only its answer was lost. An upload with an unknown id stores nothing."""
    write(tmp_path, COUNT)
    write(s3_url, COUNT)
    for skip in range(0, len(proxy.asked), often(20, long=1)):
        url = s3.make_bucket(f"{s3_url[5:]}-{skip}")
        proxy.clear()
        rule = proxy.add(fault, method="*", skip=skip, times=1)
        write(url, COUNT)
        assert rule.hits == 1
        assert objects(url) == contents(tmp_path)
        assert not Bucket(url).unfinished(empty=fault is not lost)


def test_a_lost_answer_to_a_completed_upload_is_invisible(proxy: Proxy, s3_url: str, tmp_path: Path) -> None:
    """The server has already forgotten the upload."""
    write(tmp_path, COUNT)
    rule = proxy.add(lost, method="POST", when=lambda exchange: "uploadId" in exchange.path, times=1)
    write(s3_url, COUNT)
    assert rule.hits == 1
    assert objects(s3_url) == contents(tmp_path)


def test_a_failed_abort_keeps_the_uploads_error(proxy: Proxy, s3_url: str, tmp_path: Path) -> None:
    proxy.add(status(507, "InsufficientStorage"), key="*/shard.00001.*", method="PUT")
    proxy.add(status(403, "AccessDenied"), key="*/shard.00001.*", method="DELETE")
    with pytest.raises(TransportError, match=r"shard\.00001\.mdsx: S3 answered 507.*free some space"):
        write(s3_url, COUNT)
    proxy.clear()
    assert Bucket(s3_url).unfinished()
    write(tmp_path, COUNT)
    write(s3_url, COUNT)
    assert objects(s3_url) == contents(tmp_path)
    assert not Bucket(s3_url).unfinished()
