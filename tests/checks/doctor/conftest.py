"""What tests of the doctor share: servers that answer everything in one way, and an undamaged dataset on S3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import mdsx
from mdsx.checks.doctor import Finding, Job, examine, machine
from mdsx.storage.cache import Cache
from tests.storage.remote.test_web import answering
from tools.servers.s3 import S3Server

Examined = dict[str, Finding]
Examine = Callable[..., Examined]


def always(status: int, headers: Mapping[str, str], body: bytes) -> AbstractContextManager[str]:
    """The URL of a server that answers every request like this, while the context lasts."""

    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response_only(status)  # without a date of its own
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answering(reply)


@pytest.fixture(scope="session")
def corpus(s3: S3Server) -> str:
    """The URL of a dataset on S3: 8 shards of 100 kB."""
    url = f"{s3.make_bucket('doctor')}/corpus"
    with mdsx.Writer(url, {"bits": "bytes"}, shard_size=100_000) as out:
        for number in range(78):
            out.write({"bits": bytes([number]) * 10_000})
    return url


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Returns what the doctor finds, by check. The machine's shared memory is as large as its disk."""
    monkeypatch.setattr(machine, "_SHM", tmp_path)

    def run(
        url: object,
        job: Job = Job(world_size=2, batch_size=1),  # noqa: B008 - it cannot change
        *,
        cache: Path = tmp_path / "cache",
        limit: int | None = None,
        write: bool = False,
        **options: str,
    ) -> Examined:
        found: Examined = {}
        for finding in examine(
            str(url), job=job, cache=Cache(cache, limit=limit), storage_options=options or None, write=write
        ):
            if finding.check not in found or finding.state != "ok":  # the worst of two
                found[finding.check] = finding
        return found

    return run


def problems(found: Examined) -> set[str]:
    return {check for check, finding in found.items() if finding.state == "problem"}
