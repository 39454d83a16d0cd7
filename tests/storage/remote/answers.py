"""Random answers of servers: what each cloud's would be, with some parts of it replaced by something odd.

One seed makes one server. Its random numbers decide about each answer.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from tests.storage.remote.hostile import Request

BODY = bytes(range(200)) * 5
DATE = "Mon, 23 Nov 2026 18:00:00 GMT"
Headers = list[tuple[str, str]]

NUMBERS = ["", "0", "-1", "1e3", "9" * 30, "9" * 5000, "0x10", " 7", "7 ", "+7", "1_0", "\xb2", "nan", "1,1", "1000"]
DATES = [
    "", DATE, "Mon, 01 Jan 0001 00:00:00 -0000", "Mon, 01 Jan 0000 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 2020 00:00:00 +99999999999", "Mon, 99 Foo 2020 99:99:99", "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z", "2026-01-01T00:00:00", "2026-13-01T00:00:00.000Z", "9" * 20, "-9" * 300, "zzz",
]  # fmt: skip
TEXTS = [
    "", "x", '"', '"x"', 'W/"x"', "\x00", "\x01\x7f", "a\r\n b", "\xff\xfe", "\x9b31m", "x" * 5000, "gzip", "chunked",
    "identity", "bytes 0-9/10", "bytes 0-999/1000", "bytes 5-9/*", "bytes */1000", "bytes 9-5/1000",
    f"bytes 0-{'9' * 5000}/7", f"bytes {'9' * 5000}-9/7", "bytes=0-5", f"bytes=0-{'9' * 5000}", "keep-alive", "close",
    "100-continue", "http://[", "http://127.0.0.1:9/x", "https://127.0.0.1:99999999/", "file:///etc/passwd", "//", "/x",
    "http://\xff\xfe.x\xad/", "http://127.0.0.1:1/a b\x01c", "http://127.0.0.1:9\\@x/", "gopher://x/",
    "http://" + "a." * 200,
    '<http://[>; rel="next"', '<file:///x>; rel="next"', '</api/x>; rel="next"', "t=" + "9" * 400, '"api";r=0;t=5',
]  # fmt: skip
NAMES = [
    "Content-Length", "Content-Range", "ETag", "Date", "Age", "Last-Modified", "Location", "Retry-After", "Link",
    "Transfer-Encoding", "Content-Encoding", "Content-Type", "Connection", "Range", "RateLimit", "X-Goog-Generation",
    "X-Linked-Etag", "X-Linked-Size", "X-Repo-Commit", "X-Error-Code", "X-Error-Message", "x-amz-bucket-region",
    "x-ms-error-code", "x-amz-mp-parts-count", "x-amz-missing-meta", "x-amz-expiration", "Expires", "Server", "Upgrade",
    "x-amz-version-id", "x-amz-delete-marker", "x-amz-server-side-encryption-bucket-key-enabled", "Keep-Alive",
]  # fmt: skip
STATUSES = [
    "200", "201", "204", "206", "301", "302", "303", "304", "307", "308", "400", "401", "403", "404", "408", "409",
    "410", "412", "416", "429", "500", "501", "503", "507", "100", "101", "199", "999", "1000", "-1", "0", "2OO", "",
    "9" * 5000,
]  # fmt: skip
CODES = [
    "NoSuchBucket", "NoSuchKey", "NoSuchUpload", "SlowDown", "InternalError", "PermanentRedirect", "AccessDenied",
    "AuthorizationHeaderMalformed", "PreconditionFailed", "ContainerNotFound", "BlobAlreadyExists", "InvalidBlockList",
    "BlobNotFound", "RepoNotFound", "RevisionNotFound", "EntryNotFound", "GatedRepo", "rateLimitExceeded", "BadDigest",
]  # fmt: skip


class Answers:
    """The answers of one random server of a `cloud`."""

    def __init__(self, cloud: str, seed: int) -> None:
        self.cloud = cloud
        self.seed = seed
        self.random = random.Random(f"{cloud} {seed}")
        self.odd = self.random.choice([0.0, 0.3, 0.6, 1.0, 1.0, 1.0])  # how many of the answers
        self.stored = BODY
        self.pages = self.random.choice([0, 1, 3, 10**9])

    def __call__(self, request: Request) -> Iterable[bytes]:
        status, headers, body = self._right(request)
        if self.random.random() >= self.odd:
            return iter([_joined(str(status), headers, body)])
        return self._mutated(str(status), headers, body)

    # --- what the right server would answer

    def _right(self, request: Request) -> tuple[int, Headers, bytes]:
        if self.random.random() < 0.1:
            return self._error()
        if request.method == "HEAD":
            return 200, [("x-amz-bucket-region", "us-east-1"), ("Content-Length", "0")], b""
        if request.method == "DELETE":
            return 204, [], b""
        if request.method in ("PUT", "POST"):
            return self._written(request)
        pages: dict[str, Callable[[Request], tuple[Headers, bytes] | None]] = {
            "s3": self._s3_page, "gs": self._gs_page, "az": self._az_page, "hf": self._hf_page, "web": lambda _: None,
        }  # fmt: skip
        page = pages[self.cloud](request)
        if page is not None:
            return 200, [*page[0], ("Content-Length", str(len(page[1])))], page[1]
        return self._object(request)

    def _object(self, request: Request) -> tuple[int, Headers, bytes]:
        about = [("ETag", '"x"'), ("Last-Modified", DATE), ("X-Goog-Generation", "7"), ("X-Repo-Commit", "abc")]
        about += [("Date", DATE), ("Server", "x")]
        if self.random.random() < 0.1:
            return 404, [("Content-Length", "0")], b""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if found is None:
            return 200, [*about, ("Content-Length", str(len(self.stored)))], self.stored
        part = self.stored[int(found[1]) : int(found[2] or len(self.stored)) + 1]
        covered = f"bytes {found[1]}-{int(found[1]) + len(part) - 1}/{len(self.stored)}"
        return 206, [*about, ("Content-Range", covered), ("Content-Length", str(len(part)))], part

    def _written(self, request: Request) -> tuple[int, Headers, bytes]:
        body = b""
        if "uploads" in request.query:
            body = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        elif "uploadId" in request.query and request.method == "POST":
            body = b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>'
        headers = [("ETag", '"x"'), ("Content-Length", str(len(body)))]
        if "resumable" in request.query:
            headers.append(("Location", "http://127.0.0.1:9/upload/1"))
        sent = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", request.headers.get("content-range", ""))
        if sent and int(sent[2]) + 1 < int(sent[3]):
            return 308, [("Range", f"bytes=0-{sent[2]}"), ("Content-Length", "0")], b""
        return (201 if self.cloud == "az" else 200), headers, body

    def _mark(self) -> str:
        """The next page's mark; often none."""
        self.pages -= 1
        if self.pages < 0:
            return ""
        return self.random.choice(["A", "B", "C", str(self.random.random()), str(self.random.random())])

    def _s3_page(self, request: Request) -> tuple[Headers, bytes] | None:
        if "uploads" in request.query:
            root, item = (
                "ListMultipartUploadsResult",
                "<Upload><Key>ds/a</Key><UploadId>u</UploadId><Initiated>{}</Initiated></Upload>",
            )
            marks = "<NextKeyMarker>{0}</NextKeyMarker><NextUploadIdMarker>{0}</NextUploadIdMarker>"
        elif "list-type" in request.query:
            root, item = (
                "ListBucketResult",
                '<Contents><Key>ds/a</Key><Size>7</Size><LastModified>{}</LastModified><ETag>"x"</ETag></Contents>',
            )
            marks = "<NextContinuationToken>{}</NextContinuationToken>"
        else:
            return None
        mark = self._mark()
        more = f"<IsTruncated>{'true' if mark else 'false'}</IsTruncated>" + (marks.format(mark) if mark else "")
        return [], f"<?xml version='1.0'?><{root}>{more}{item.format('2026-01-01T00:00:00.000Z')}</{root}>".encode()

    def _gs_page(self, request: Request) -> tuple[Headers, bytes] | None:
        if "alt=media" in request.query:
            return None
        item = {"name": "ds/a", "size": "7", "generation": "12", "updated": "2026-01-01T00:00:00.000Z"}
        return [], json.dumps({"items": [item], "nextPageToken": self._mark()}).encode()

    def _az_page(self, request: Request) -> tuple[Headers, bytes] | None:
        if "comp=list" not in request.query:
            return None
        about = f"<Content-Length>7</Content-Length><Etag>0x1</Etag><Last-Modified>{DATE}</Last-Modified>"
        blob = f"<Blob><Name>ds/a</Name><Properties>{about}</Properties><Metadata><k>v</k></Metadata></Blob>"
        return (
            [],
            f"<EnumerationResults><Blobs>{blob}</Blobs><NextMarker>{self._mark()}</NextMarker></EnumerationResults>".encode(),
        )

    def _hf_page(self, request: Request) -> tuple[Headers, bytes] | None:
        if "/revision/" in request.target:
            return [], b'{"sha":"abc"}'
        if "/tree/" not in request.target:
            return None
        mark = self._mark()
        link = [("Link", f'<http://127.0.0.1:9/api/datasets/o/n/tree/abc?c={mark}>; rel="next"')] if mark else []
        return (
            link,
            b'[{"type":"file","path":"ds/a","oid":"x","size":7,"lfs":{"oid":"y"}},{"type":"folder","path":"p","oid":"z"}]',
        )

    def _error(self) -> tuple[int, Headers, bytes]:
        code = self.random.choice(CODES)
        body = self.random.choice(
            [
                f"<Error><Code>{code}</Code><Message>m</Message><Region>r</Region></Error>",
                json.dumps({"error": {"message": "m", "errors": [{"reason": code}]}}),
                "<!DOCTYPE html><html>log in</html>",
                "",
            ]
        ).encode()
        status = int(self.random.choice([each for each in STATUSES if len(each) == 3 and each >= "300"][:-1]))
        headers = [
            ("x-ms-error-code", code),
            ("X-Error-Code", code),
            ("Retry-After", "3"),
            ("Content-Length", str(len(body))),
        ]
        return status, headers if self.random.random() < 0.5 else headers[-1:], body

    # --- what a broken or hostile one does

    def _mutated(self, status: str, headers: Headers, body: bytes) -> Iterable[bytes]:
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            match self.random.randrange(10):
                case 0:
                    status = self.random.choice(STATUSES)
                case 1 | 2 | 3:
                    headers = self._odd_headers(headers)
                case 4 | 5 | 6:
                    body = self._odd_body(body)
                    if self.random.random() < 0.9:
                        headers = [each for each in headers if each[0] != "Content-Length"]
                        headers.append(("Content-Length", str(len(body))))
                case 7:
                    return self._chunks(status, headers, body)
                case 8:
                    return self._broken(_joined(status, headers, body))
                case 9:
                    return self._endless(status, headers)
        return iter([_joined(status, headers, body)])

    def _odd_headers(self, headers: Headers) -> Headers:
        values = self.random.choice([NUMBERS, DATES, TEXTS])
        changed = list(headers)
        match self.random.randrange(4):
            case 0 if changed:
                del changed[self.random.randrange(len(changed))]
            case 1:
                changed.append((self.random.choice(NAMES), self.random.choice(values)))
            case 2:
                changed += [(f"X-{n}", "y") for n in range(self.random.choice([50, 99, 101, 5000]))]
            case _ if changed:
                place = self.random.randrange(len(changed))
                changed[place] = changed[place][0], self.random.choice(values)
        return changed

    def _odd_body(self, body: bytes) -> bytes:
        number = self.random.choice(NUMBERS + DATES + TEXTS).encode()
        match self.random.randrange(4, 13) if len(body) > 10_000 else self.random.randrange(14):
            case 0:
                return re.sub(rb"\b\d+\b", lambda _: number, body, count=self.random.randrange(3))
            case 1:
                return re.sub(rb">[^<>]+<", lambda _: b">" + number + b"<", body, count=self.random.randrange(1, 4))
            case 2:
                return re.sub(rb'"[^"]*"', lambda _: b'"' + number + b'"', body, count=self.random.randrange(1, 5))
            case 3:
                tags = re.findall(rb"<(\w+)>", body)
                tag = self.random.choice(tags) if tags else b"x"
                return re.sub(rb"<%s>.*?</%s>" % (tag, tag), b"", body)
            case 4:
                return b'<!DOCTYPE x [<!ENTITY a "bbbbbbbbb">]>' + body.replace(b"ds/a", b"&a;")
            case 5:
                return self.random.choice([b"<a>", b"[", b'{"items":', b'{"error":[', b'{"x":[']) * self.random.choice(
                    [70, 2000, 60000]
                )
            case 6:
                return body[: self.random.randrange(len(body) + 1)]
            case 7:
                return gzip.compress(bytes(10**6)) if self.random.random() < 0.5 else gzip.compress(body)
            case 8:
                return self.random.choice(
                    [
                        b"",
                        b"null",
                        b"\xff\xfe\x00",
                        b'{"sha":"\\ud800"}',
                        b"NaN",
                        b"[]",
                        b"{}",
                        b"[null]",
                        b"<x/>",
                        b"1" * 10_000,
                    ]
                )
            case 9:
                changed = bytearray(body or b"x")
                for _ in range(self.random.randrange(1, 5)):
                    changed[self.random.randrange(len(changed))] = self.random.randrange(256)
                return bytes(changed)
            case 10:
                return b"\xef\xbb\xbf" + body if self.random.random() < 0.5 else body.decode("latin-1").encode("utf-16")
            case 11:
                name = self.random.choice([b"utf-7", b"utf-16", b"latin-1", b"nonsense", b"cp037", b"idna", b"\xff"])
                return b'<?xml version="1.0" encoding="%s"?>' % name + re.sub(rb"<\?.*?\?>", b"", body)
            case 12:
                return body * self.random.choice([2, 50])
            case _:
                names = re.findall(rb'"(\w+)":', body)
                name = self.random.choice(names) if names else b"x"
                value = self.random.choice(
                    [b"null", b"-1", b"1e999", b"[]", b"{}", b"true", b"9" * 5000, b'"\\u0000\\ud800"']
                )
                return re.sub(rb'("%s": ?)("[^"]*"|\d+|\[.*\]|{.*})' % name, lambda found: found[1] + value, body)

    def _chunks(self, status: str, headers: Headers, body: bytes) -> Iterator[bytes]:
        headers = [each for each in headers if each[0] != "Content-Length" or self.random.random() < 0.2]
        yield _joined(status, [*headers, ("Transfer-Encoding", "chunked")], b"")
        sizes = [b"%x", b"%x", b"%x;a=b", b"0x%x", b"-%x", b" %x ", b"zz%x", b"", b"f" * 30, b"f" * 70_000 + b"%x"]
        while body:
            count = self.random.choice([1, 7, 300, len(body)])
            part, body = body[:count], body[count:]
            form = sizes[0] if self.random.random() < 0.7 else self.random.choice(sizes)
            yield form.replace(b"%x", b"%x" % len(part)) + b"\r\n" + part
            yield b"\r\n" if self.random.random() < 0.95 else self.random.choice([b"", b"\n", b"XX"])
        yield self.random.choice(
            [b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"0\r\n", b"", b"\r\n\r\n", b"0\r\n" + b"A: b\r\n" * 50_000]
        )

    def _broken(self, sent: bytes) -> Iterator[bytes]:
        match self.random.randrange(4):
            case 0:
                yield sent[: self.random.randrange(len(sent))]
            case 1:
                yield sent[self.random.randrange(1, 20) :]
            case 2:
                changed = bytearray(sent)
                for _ in range(self.random.randrange(1, 4)):
                    changed[self.random.randrange(min(len(sent), 200))] = self.random.randrange(256)
                yield bytes(changed)
            case _:
                yield from (sent[place : place + 1] for place in range(len(sent[:2000])))  # one byte at a time
                yield sent[2000:]

    def _endless(self, status: str, headers: Headers) -> Iterator[bytes]:
        kept = [each for each in headers if each[0] != "Content-Length"]
        endless: list[tuple[bytes, bytes]] = [
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            (b"HTTP/1.1 " + status.encode("latin-1")[:9] + b" X\r\n", b"X-More: y\r\n"),
            (b"", b"x"),
            (_joined(status, kept, b""), b" " * 5000),
            (_joined(status, [*kept, ("Content-Length", "9" * 15)], b""), b" " * 5000),
            (_joined(status, [*kept, ("Transfer-Encoding", "chunked")], b""), b"1000\r\n" + b" " * 0x1000 + b"\r\n"),
            (_joined(status, [*kept, ("Transfer-Encoding", "chunked")], b""), b"1\r\n<\r\n"),
            (_joined(status, [*kept, ("Transfer-Encoding", "chunked")], b"0\r\n"), b"A: b\r\n" * 100),
            (_joined(status, [*kept, ("Transfer-Encoding", "chunked")], b""), b"0" * 5000),
            (_joined(status, [*kept, ("Transfer-Encoding", "chunked")], b""), b"1;" + b"x" * 5000 + b"\r\n \r\n"),
        ]
        start, more = self.random.choice(endless)
        yield start
        yield from repeat(more)


class Tokens(Answers):
    """The answers of a random server of tokens, and of what it is asked for with them."""

    def _right(self, request: Request) -> tuple[int, Headers, bytes]:
        if "token" not in request.target:
            return super()._right(request)
        expires = self.random.choice(["3600", "1800000000"])
        token = {
            "access_token": "token-of-hostile-server",
            "expires_in": 3600,
            "expires_on": expires,
            "token_type": "Bearer",
            "resource": "r",
        }
        body = json.dumps(token).encode()
        return 200, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))], body


def _joined(status: str, headers: Headers, body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
