"""An S3 that refuses in the middle: an error that names the object and the way out, no index; then a resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from mdsx.errors import ForbiddenError, MdsxError, TransportError
from mdsx.storage import s3 as s3_module
from tests.conftest import Often
from tests.storage.proxy import Fault, Proxy, lost, reset, status
from tests.writer.jobs import contents, write
from tests.writer.test_failing_disk import attempt
from tests.writer.test_s3 import objects
from tests.writer.watch import Bucket
from tools.s3_server import S3Server

COUNT = 30  # samples: four shards, each in three parts
REFUSALS: dict[str, tuple[Fault, type[MdsxError], str]] = {
    "no rights": (status(403, "AccessDenied"), ForbiddenError, "check the credentials"),
    "expired": (status(400, "ExpiredToken"), ForbiddenError, "check the credentials"),
    "quota": (status(403, "QuotaExceeded"), TransportError, "make room or raise the quota"),
    "full": (status(507, "InsufficientStorage"), TransportError, "make room or raise the quota"),
    "broken": (status(500, "InternalError"), TransportError, "given up after"),
    "gone": (reset(None), TransportError, "given up after"),
}


@pytest.fixture(autouse=True)
def uploads_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "_MULTIPART", 400)


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_from_any_request_on(
    name: str, s3: S3Server, proxy: Proxy, s3_url: str, tmp_path: Path, often: Often
) -> None:
    """Also the giving up of an upload in parts is refused: the resume gives it up."""
    fault, kind, way_out = REFUSALS[name]
    write(tmp_path, COUNT)
    write(s3_url, COUNT)
    requests = len(proxy.asked)
    assert requests > 30
    for skip in range(list(REFUSALS).index(name), requests, often(21, long=1)):
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
def test_what_fails_once_is_invisible_at_any_request(
    fault: Fault, s3: S3Server, proxy: Proxy, s3_url: str, tmp_path: Path, often: Often
) -> None:
    """Also where a request was done and only its answer was lost."""
    write(tmp_path, COUNT)
    write(s3_url, COUNT)
    for skip in range(0, len(proxy.asked), often(9, long=1)):
        url = s3.make_bucket(f"{s3_url[5:]}-{skip}")
        proxy.clear()
        rule = proxy.add(fault, method="*", skip=skip, times=1)
        write(url, COUNT)
        assert rule.hits == 1
        assert objects(url) == contents(tmp_path)
        assert not Bucket(url).unfinished()
