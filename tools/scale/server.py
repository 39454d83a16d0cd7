"""An S3 server whose bucket has millions of made-up objects: what `rclone` cannot list, this one keeps in memory.

It knows the requests of mdsx only: GET with ranges, PUT with conditions and in parts, DELETE, and listings of a
thousand keys. It counts them.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

from mdsx.format import filenames
from tools.scale.made import SAMPLES, folders, make
from tools.servers.s3 import S3Server

BUCKET = "made"
_PAGE = 1000  # keys of a listing
_MODIFIED = "2026-01-01T00:00:00.000Z"


class Object(NamedTuple):
    data: bytes
    etag: str


class MadeServer(S3Server):
    """Serves a bucket of made-up parts. `index`: whether the index over all of them is there; `samples`: of a shard.

    With `late`, the parts are there from the first object on that is stored: the beginning of an engine's run."""

    listening = r"at port (\d+)"

    def __init__(
        self,
        parts: int,
        shards: int,
        *,
        index: bool,
        attempts: bool = True,
        samples: int = SAMPLES,
        late: bool = False,
    ) -> None:
        super().__init__(".")
        self.url = f"s3://{BUCKET}"
        given = {"parts": parts, "shards": shards, "index": index, "attempts": attempts, "samples": samples}
        self._given = json.dumps({**given, "late": late})

    def command(self, port: int) -> Sequence[str | Path]:
        return [sys.executable, "-m", "tools.scale.server", str(port), self._given]

    def counts(self) -> Counter[str]:
        """Return how many requests of each kind there were, and how many bytes were sent."""
        with urlopen(f"{self.endpoint}/-counts") as answer:
            return Counter(json.load(answer))


class Bucket:
    """The objects: those of the folders of parts, which are the same by the end of their name; and those that were
    stored. `keys` returns the keys of the former, sorted."""

    def __init__(
        self,
        parts: int,
        keys: Callable[[], list[str]],
        by_suffix: dict[str, bytes],
        own: dict[str, bytes],
        *,
        late: bool = False,
    ) -> None:
        self._parts, self._make_keys, self._hidden = parts, keys, late
        self._lock = threading.Lock()
        self._by_suffix = {suffix: _object(data) for suffix, data in by_suffix.items()}
        self._own = {key: _object(data) for key, data in own.items()}
        self._removed = set[str]()
        self._uploads: dict[str, dict[int, bytes]] = {}

    def get(self, key: str) -> Object | None:
        if (own := self._own.get(key)) is not None:
            return own
        number, name = filenames.part_number(key), key.partition("/")[2]
        if self._hidden or number is None or number >= self._parts or "/" in name or key in self._removed:
            return None
        return self._by_suffix.get(name[name.rfind(".") :])

    @cached_property
    def _keys(self) -> list[str]:
        return self._make_keys()

    def put(self, key: str, data: bytes) -> Object:
        found = self._own[key] = _object(data)
        self._hidden = False
        return found

    def delete(self, key: str) -> None:
        self._own.pop(key, None)
        self._removed.add(key)

    def listed(self, prefix: str, after: str) -> Iterator[tuple[str, Object]]:
        """Yield the first keys after `after`, at most one more than a page has."""
        with self._lock:
            made = [] if self._hidden else self._made(max(prefix, after), prefix)
        found = sorted({*made, *(key for key in self._own if key.startswith(prefix))})
        for key in [key for key in found if key > after][: _PAGE + 1]:
            if (each := self.get(key)) is not None:
                yield key, each

    def _made(self, start: str, prefix: str) -> list[str]:
        place, found = bisect_left(self._keys, start), list[str]()
        while place < len(self._keys) and len(found) < _PAGE + 2 and self._keys[place].startswith(prefix):
            if self._keys[place] not in self._removed:
                found.append(self._keys[place])
            place += 1
        return found

    def begin(self) -> str:
        upload = str(len(self._uploads))
        self._uploads[upload] = {}
        return upload

    def add(self, upload: str, part: int, data: bytes) -> None:
        self._uploads[upload][part] = data

    def complete(self, upload: str, key: str) -> Object:
        return self.put(key, b"".join(data for _, data in sorted(self._uploads.pop(upload).items())))


def _object(data: bytes) -> Object:
    return Object(data, f'"{hashlib.md5(data).hexdigest()}"')


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bucket: Bucket
    counts: Counter[str]
    lock: threading.Lock

    def do_GET(self) -> None:
        key, query = self._key()
        if self.path == "/-counts":
            self._answer(200, json.dumps(self.counts).encode())
        elif "list-type" in query:
            self._list(query.get("prefix", ""), query.get("continuation-token", ""))
        elif "uploads" in query:
            self._answer(200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>", "LIST uploads")
        elif (found := self.bucket.get(key)) is None:
            self._refuse(404, "NoSuchKey")
        elif self.headers.get("If-Match", found.etag) != found.etag:
            self._refuse(412, "PreconditionFailed")
        else:
            self._send(found)

    def do_PUT(self) -> None:
        key, query = self._key()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        found = self.bucket.get(key)
        etag = found.etag if found else ""
        if (found and "If-None-Match" in self.headers) or self.headers.get("If-Match", etag) != etag:
            self._refuse(412, "PreconditionFailed")
        elif "uploadId" in query:
            self.bucket.add(query["uploadId"], int(query["partNumber"]), data)
            self._answer(200, b"", "PUT", {"ETag": '"part"'})
        else:
            self._answer(200, b"", "PUT", {"ETag": self.bucket.put(key, data).etag})

    def do_POST(self) -> None:
        key, query = self._key()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploads" in query:
            body = f"<InitiateMultipartUploadResult><UploadId>{self.bucket.begin()}</UploadId>"
            self._answer(200, f"{body}</InitiateMultipartUploadResult>".encode(), "POST")
        else:
            etag = self.bucket.complete(query["uploadId"], key).etag
            body = f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
            self._answer(200, body.encode(), "POST")

    def do_DELETE(self) -> None:
        self.bucket.delete(self._key()[0])
        self._answer(204, b"", "DELETE")

    def _key(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/"), query

    def _list(self, prefix: str, after: str) -> None:
        found = list(self.bucket.listed(prefix, after))
        lines = [
            f"<Contents><Key>{key}</Key><LastModified>{_MODIFIED}</LastModified><ETag>{each.etag}</ETag>"
            f"<Size>{len(each.data)}</Size></Contents>"
            for key, each in found[:_PAGE]
        ]
        more = f"<NextContinuationToken>{found[_PAGE - 1][0]}</NextContinuationToken>" if len(found) > _PAGE else ""
        self._answer(200, f"<ListBucketResult>{''.join(lines)}{more}</ListBucketResult>".encode(), "LIST")

    def _send(self, found: Object) -> None:
        wanted, total, etag = self.headers.get("Range"), len(found.data), {"ETag": found.etag}
        if not wanted:
            return self._answer(200, found.data, "GET", etag)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1 if last else total, total)
        if start >= total:
            return self._refuse(416, "InvalidRange")
        about = {**etag, "Content-Range": f"bytes {start}-{stop - 1}/{total}"}
        return self._answer(206, memoryview(found.data)[start:stop], "GET", about)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode(), f"{self.command} {status}")

    def _answer(
        self, status: int, body: bytes | memoryview, kind: str = "", headers: dict[str, str] | None = None
    ) -> None:
        if kind:
            with self.lock:
                self.counts[kind] += 1
                self.counts["bytes"] += len(body)
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def serve(port: int, parts: int, shards: int, *, index: bool, attempts: bool, samples: int, late: bool) -> None:
    """Serve until the end of the process. Requests wait until all is made."""
    counts, lock = Counter[str](), threading.Lock()
    handler = type("MadeHandler", (Handler,), {"counts": counts, "lock": lock})
    server = _HttpServer(("127.0.0.1", port), handler)
    print(f"at port {server.server_port}", flush=True)
    made = make(samples)

    def keys() -> list[str]:
        names = [filenames.INDEX, *(filenames.shard(number, compressed=False) for number in range(shards))]
        return sorted(f"{folder}/{name}" for folder in folders(parts, attempts) for name in names)

    own = {filenames.INDEX: made.whole(parts, shards)} if index else {}
    part = made.part(shards) if parts > 1 else b""
    by_suffix = {".json": part, ".mdsx": made.shard}
    handler.bucket = Bucket(parts, keys, by_suffix, own, late=late)  # type: ignore[attr-defined]
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), **json.loads(sys.argv[2]))
