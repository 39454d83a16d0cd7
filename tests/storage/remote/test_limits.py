"""Whatever a server sends, and however slowly: it ends within the limits of docs/operations.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count, repeat
from pathlib import Path

import pytest

import mdsx
from mdsx.storage import Storage, open_storage, retry
from mdsx.storage.remote import limits
from tests.storage.remote.hostile import CLOUDS, Hostile, Request, head, serving, whole

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
ETAG = ("ETag", '"x"')
CHUNKED = ("Transfer-Encoding", "chunked")

everywhere = pytest.mark.parametrize("cloud", CLOUDS)
listing = pytest.mark.parametrize("cloud", ["s3", "gs", "az", "hf"])


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "TRIES", 1)


def opened(cloud: str) -> Storage:
    url, options = CLOUDS[cloud]
    return open_storage(url, options)


def got(storage: Storage) -> object:
    return storage.get("x")


def listed(storage: Storage) -> object:
    return list(storage.list())


def refused(
    cloud: str, verb: Callable[[Storage], object], answer: Callable[[Request], Iterable[bytes]], *, seconds: float = 0
) -> tuple[mdsx.TransportError, Hostile]:
    """Return the error of `verb`, and the server after it."""
    server = Hostile(answer, seconds)
    with serving(server), pytest.raises(mdsx.TransportError) as caught:
        verb(opened(cloud))
    return caught.value, server


# --- seconds


@everywhere
@pytest.mark.parametrize("start", [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_headers_that_drip_end(cloud: str, start: bytes) -> None:
    error, server = refused(cloud, got, lambda _: iter([start, *[b" "] * 1000]), seconds=5)
    assert "headers take more than 60 s" in str(error)
    assert server.sent < 100


@everywhere
def test_a_body_that_drips_ends(cloud: str) -> None:
    start = head(200, ("Content-Length", "100000"), ETAG)
    error, server = refused(cloud, got, lambda _: iter([start, *[b" "] * 1000]), seconds=5)
    assert "trickles" in str(error)
    assert server.sent < len(start) + 100


@listing
def test_a_listing_that_drips_ends(cloud: str) -> None:
    start = head(200, ("Content-Length", "100000"))
    error, server = refused(cloud, listed, lambda _: iter([start, *[b" "] * 1000]), seconds=5)
    assert "trickles" in str(error)
    assert server.sent < len(start) + 100


@everywhere
def test_an_error_that_drips_ends(cloud: str) -> None:
    start = head(403, ("Content-Length", "100000"))
    _, server = refused(cloud, got, lambda _: iter([start, *[b" "] * 1000]), seconds=5)
    assert server.sent < len(start) + 100


@pytest.mark.parametrize("cloud", ["s3", "gs", "az"])
def test_the_answer_to_a_write_may_be_slow_but_ends(cloud: str) -> None:
    """S3 sends spaces while it assembles the parts of a large object."""
    body = [b" "] * 100
    server = Hostile(lambda _: iter([head(200, ("Content-Length", "100"), ETAG), *body]), 5.0)
    with serving(server):
        if cloud != "s3":  # whose answer must be XML
            opened(cloud).put("x", b"1")
    start = head(200, ("Content-Length", "100000"), ETAG)
    error, server = refused(cloud, lambda each: each.put("x", b"1"), lambda _: iter([start, *[b" "] * 1000]), seconds=5)
    assert "takes more than 600 s" in str(error)
    assert server.sent < len(start) + 130


# --- bytes


@everywhere
@pytest.mark.parametrize("line", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X-More: " + b"x" * 60_000 + b"\r\n"])
def test_headers_without_an_end_are_refused(cloud: str, line: bytes) -> None:
    start = b"" if line.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
    error, server = refused(cloud, got, lambda _: iter([start, *repeat(line, 100_000)]))
    assert "headers" in str(error)
    assert server.sent <= limits.HEAD + 2**17


@everywhere
def test_a_chunk_size_without_an_end_is_refused(cloud: str) -> None:
    start = head(206, ("Content-Range", "bytes 0-99/100"), CHUNKED, ETAG)
    error, server = refused(cloud, got, lambda _: iter([start, *repeat(b"0" * 1000, 10_000)]))
    assert "chunk" in str(error)
    assert server.sent <= limits.FRAMING + 2**17


@listing
@pytest.mark.parametrize("line", [b"0\r\n" + b"A: b\r\n" * 100, b"1;" + b"x" * 60_000 + b"\r\n \r\n"])
def test_framing_without_an_end_is_refused(cloud: str, line: bytes) -> None:
    """Trailers, and chunks of a byte with a long comment each."""
    more = b"A: b\r\n" * 100 if line.startswith(b"0") else line
    error, server = refused(cloud, listed, lambda _: iter([head(200, CHUNKED), line, *repeat(more, 10_000)]))
    assert "trailers" in str(error)
    assert server.sent <= 2**18


@listing
def test_a_listing_without_an_end_is_refused(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DOCUMENT", 10_000)
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    error, server = refused(cloud, listed, lambda _: iter([head(200, CHUNKED), *repeat(chunk, 100)]))
    assert "too long (expected at most 10,000 bytes)" in str(error)
    assert server.sent < 40_000


@everywhere
def test_an_error_without_an_end_is_cut(cloud: str) -> None:
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    _, server = refused(cloud, got, lambda _: iter([head(403, CHUNKED), *repeat(chunk, 1000)]))
    assert server.sent < 2 * limits.ERROR


@everywhere
def test_an_object_too_large_to_be_read_at_once_is_refused(cloud: str) -> None:
    start = head(200, ("Content-Length", str(limits.OBJECT + 1)), ETAG)
    error, server = refused(cloud, got, lambda _: iter([start, *repeat(b" " * 1000, 1000)]))
    assert "too large to be read whole" in str(error)
    assert server.sent < 20_000


# --- pages


def page(cloud: str, mark: str) -> Callable[[Request], Iterator[bytes]]:
    """A page without objects, and the next one's mark."""

    def answer(request: Request) -> Iterator[bytes]:
        if cloud == "s3" and "uploads" in request.query:
            marks = f"<NextKeyMarker>{mark}</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"
            root = "ListMultipartUploadsResult"
            yield whole(f"<{root}><IsTruncated>true</IsTruncated>{marks}</{root}>".encode())
        elif cloud == "s3":
            more = f"<NextContinuationToken>{mark}</NextContinuationToken>"
            yield whole(f"<ListBucketResult>{more}</ListBucketResult>".encode())
        elif cloud == "gs":
            yield whole(json.dumps({"nextPageToken": mark}).encode())
        elif cloud == "az":
            yield whole(f"<EnumerationResults><Blobs/><NextMarker>{mark}</NextMarker></EnumerationResults>".encode())
        elif "/tree/" in request.target:
            yield whole(b"[]", 200, ("Link", f'</api/datasets/o/n/tree/x?c={mark}>; rel="next"'))
        else:
            yield whole(b'{"sha":"x"}')

    return answer


def unfinished(storage: Storage) -> object:
    storage.discard_unfinished()
    return None


LISTINGS = [*((cloud, listed) for cloud in ("s3", "gs", "az", "hf")), ("s3", unfinished)]


@pytest.mark.parametrize(("cloud", "verb"), LISTINGS)
def test_pages_that_repeat_end(cloud: str, verb: Callable[[Storage], object]) -> None:
    numbers = count()
    error, server = refused(cloud, verb, lambda request: page(cloud, "ABC"[next(numbers) % 3])(request))
    assert "a page came again" in str(error)
    assert len(server.requests) <= 5


@pytest.mark.parametrize(("cloud", "verb"), LISTINGS)
@pytest.mark.parametrize("limit", ["PAGES", "EMPTY_PAGES"])
def test_pages_without_an_end_end(
    cloud: str, verb: Callable[[Storage], object], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, 5)
    numbers = count()
    error, server = refused(cloud, verb, lambda request: page(cloud, str(next(numbers)))(request))
    assert "does not end" in str(error)
    assert len(server.requests) <= 7


@pytest.mark.parametrize("status", [301, 302, 307])
@pytest.mark.parametrize("location", [(), (("Location", "http://portal.example/login"),)])
def test_redirects_of_s3_end(status: int, location: tuple[tuple[str, str], ...]) -> None:
    error, server = refused("s3", got, lambda _: iter([whole(b"<html>log in</html>", status, *location)]))
    assert "redirects endlessly" in str(error)
    assert len(server.requests) == limits.HOPS


# --- what is in the bytes


@pytest.mark.parametrize("cloud", ["s3", "az"])
@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult><Contents><Key>&a;</Key></Contents></ListBucketResult>',
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><ListBucketResult>&a;</ListBucketResult>',
        b"<EnumerationResults>" + b"<a>" * 200_000,
        b"<ListBucketResult>" + b"<a/>" * 600_000 + b"</ListBucketResult>",
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x><ListBucketResult/>'.encode("utf-16"),
    ],
    ids=["entity", "external", "deep", "many", "UTF-16"],
)
def test_xml_bombs_are_refused(cloud: str, body: bytes) -> None:
    error, _ = refused(cloud, listed, lambda _: iter([whole(body)]))
    assert "did not return a listing" in str(error) or "did not return an S3 response" in str(error)


ROWS = [
    "| a connection to an address | {CONNECT} s |",
    "| the first byte of an answer, and each further byte | {SILENCE} s |",
    "| the status and the headers of an answer, with interim answers | {HEAD_SECONDS} s in all, {HEAD:kib} |",
    "| {LEAST:kib} of a body, or the rest of it | {TRICKLE} s |",
    "| the whole answer to a write | {WRITE_SECONDS} s |",
    "| chunk sizes and trailers | {FRAMING:kib}, and an {FRAMING_SHARE}th of the body |",
    "| an object that is read whole | {OBJECT:kib}; ",
    "| a page of a listing, and any other answer in XML or JSON | {DOCUMENT:kib} |",
    "| an answer with a token | {TOKEN:kib} |",
    "| an error's body | {ERROR:kib} of it are read |",
    "| XML | {DEPTH} levels, {ELEMENTS} elements and attributes, no document type |",
    "| a number, a date, an ETag | {DIGITS} digits, {DATE} characters, {ETAG} characters of printable ASCII |",
    "| pages of a listing | {PAGES}; {EMPTY_PAGES} in a row without an object; none twice |",
    "| redirects, and the requests of boto3 for one of mdsx | {HOPS} |",
    "| tries of a request | {TRIES}, for {PATIENCE} s without progress, {OBEDIENCE} s more if the server asks ",
    "| a first contact that fails at once | {FIRST_CONTACT} s |",
]


class Shown(float):
    """A limit, as the docs write it."""

    def __format__(self, unit: str) -> str:
        if unit:
            return next(f"{self / size:g} {name}" for size, name in _UNITS if self >= size)
        return f"{int(self) if self.is_integer() else float(self):,}"


_UNITS = [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")]


def test_the_docs_have_every_limit() -> None:
    values = {name: Shown(getattr(limits, name)) for name in vars(limits) if name.isupper()}
    values |= {name: Shown(getattr(retry, name)) for name in ("PATIENCE", "OBEDIENCE", "FIRST_CONTACT")}
    values["TRIES"] = Shown(8)  # which the fixture changes
    docs = DOCS.read_text()
    for row in ROWS:
        assert row.format(**values) in docs
    named = set(re.findall(r"{([A-Z_]+)", "".join(ROWS)))
    assert named == set(values)
