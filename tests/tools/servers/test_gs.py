from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import Message
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tools.servers.gs import GoogleServer

Answer = tuple[int, bytes, Message]


def answer(url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    try:
        with urlopen(Request(url, data, dict(headers or {}))) as response:
            return response.status, response.read(), response.headers
    except HTTPError as error:
        return error.code, error.read(), error.headers


def upload(gs: GoogleServer, bucket: str, name: str, data: str, condition: str = "") -> int:
    parts = f"--x\r\n\r\n{json.dumps({'name': name})}\r\n--x\r\n\r\n{data}\r\n--x--\r\n"
    url = f"{gs.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=multipart{condition}"
    return answer(url, parts.encode(), {"Content-Type": "multipart/related; boundary=x"})[0]


@pytest.fixture(scope="session")
def bucket(gs: GoogleServer) -> str:
    return gs.make_bucket("tools-servers").removeprefix("gs://")


def test_a_range_of_one_generation_is_read(gs: GoogleServer, bucket: str) -> None:
    assert upload(gs, bucket, "a/b c", "0123456789") == 200
    url = f"{gs.endpoint}/storage/v1/b/{bucket}/o/{quote('a/b c', safe='')}?alt=media"
    status, body, headers = answer(url, headers={"Range": "bytes=2-4"})
    assert (status, body) == (206, b"234")
    pinned = f"{url}&generation={headers['x-goog-generation']}"
    assert answer(pinned)[:2] == (200, b"0123456789")
    assert answer(url, headers={"Range": "bytes=10-"})[0] == 416
    assert upload(gs, bucket, "a/b c", "another") == 200
    assert answer(pinned)[0] == 404


def test_an_object_is_created_on_condition(gs: GoogleServer, bucket: str) -> None:
    assert upload(gs, bucket, "once", "1", "&ifGenerationMatch=0") == 200
    assert upload(gs, bucket, "once", "2", "&ifGenerationMatch=0") == 412


def test_listings_have_pages(gs: GoogleServer, bucket: str) -> None:
    for name in "123":
        upload(gs, bucket, f"pages/{name}", name)
    names, token = [], ""
    while token is not None:
        url = f"{gs.endpoint}/storage/v1/b/{bucket}/o?prefix=pages/&maxResults=2&pageToken={token}"
        page = json.loads(answer(url)[1])
        names += [item["name"] for item in page["items"]]
        token = page.get("nextPageToken")
    assert names == ["pages/1", "pages/2", "pages/3"]


def test_objects_survive_a_restart(gs: GoogleServer, bucket: str) -> None:
    upload(gs, bucket, "kept", "0123")
    before = gs.endpoint
    gs.stop()
    gs.start()
    assert gs.endpoint == before
    assert answer(f"{gs.endpoint}/storage/v1/b/{bucket}/o/kept?alt=media")[:2] == (200, b"0123")
