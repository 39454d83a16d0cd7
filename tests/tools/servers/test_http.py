from __future__ import annotations

import os
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tools.servers.http import HttpServer


@pytest.fixture(params=[True, False], ids=["etags", "no etags"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpServer]:
    with HttpServer(tmp_path, etags=request.param) as server:
        yield server


def answer(url: str, **headers: str) -> tuple[int, bytes, Message]:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, headers=fields)) as response:
            return response.status, response.read(), response.headers
    except HTTPError as error:
        return error.code, b"", error.headers


def test_a_range_is_read_on_condition(server: HttpServer) -> None:
    file = server.directory / "a b"
    file.write_bytes(b"0123456789")
    status, body, headers = answer(server.url("a b"), Range="bytes=2-4")
    assert (status, body, headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    same = {"If-Unmodified-Since": headers["Last-Modified"]}
    if etag := headers["ETag"]:
        same = {"If-Match": etag}
    assert answer(server.url("a b"), **same)[0] == 200
    file.write_bytes(b"9876543210")
    os.utime(file, (2**31, 2**31))
    assert answer(server.url("a b"), **same)[0] == 412
    assert answer(server.url("a b"), Range="bytes=10-")[0] == 416


def test_a_login_is_needed(tmp_path: Path) -> None:
    with HttpServer(tmp_path, login=("name", "word")) as server:
        assert answer(server.url(""))[0] == 401
        assert answer(server.url(""), Authorization="Basic bmFtZTp3b3Jk")[0] == 200
