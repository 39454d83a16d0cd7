"""What fake-gcs-server lacks of Google Cloud Storage: tokens, conditions, messages, and sessions that can be asked.

One bucket "bucket" in memory. The same server answers for what hands out tokens: the OAuth 2 endpoint, the
exchange of workload identities and the metadata server of a machine.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

_FAILED = {"error": {"message": "Precondition", "errors": [{"reason": "conditionNotMet"}]}}
TOKENS = ("/token", "/computeMetadata/v1/instance/service-accounts/default/token")


class Google(ThreadingHTTPServer):
    """`objects`: generation and bytes by name. `valid`: the token that is accepted; None accepts any request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.objects: dict[str, tuple[int, bytes]] = {}
        self.sessions: dict[str, tuple[str, bytearray]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []  # method, path with query, headers
        self.valid: str | None = None
        self.lifetime = 3600
        self.tokens = 0  # that were handed out
        self.grants: list[dict[str, str]] = []
        self.refusal: tuple[int, object] | None = None  # of the next requests for tokens
        self.answers: list[tuple[int, object]] = []  # to the next requests for objects
        self.cuts: list[int] = []  # bytes of the next parts to keep before the connection breaks
        self.unready = 0  # answers that an uploaded object is not there yet
        self.forgets: list[bool] = []  # whether it has lost the bytes of a session, at the next queries for its state
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sent(self, header: str) -> list[str | None]:
        """Return what each request for objects had in a header."""
        return [headers.get(header) for _, path, headers in self.asked if "/storage/v1/" in path]


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Google

    def _exchange(self) -> None:
        google, parts = self.server, urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        with google.lock:
            google.asked.append((self.command, self.path, dict(self.headers)))
            if "upload_id" in self.path:
                self._part(parse_qs(parts.query)["upload_id"][0], length)
                return
            body = self.rfile.read(length)
            if "/storage/v1/" not in parts.path:
                self._token(parts.path, body)
            elif google.valid is not None and self.headers["Authorization"] != f"Bearer {google.valid}":
                self._answer(401, {"error": {"message": "Invalid Credentials", "errors": [{"reason": "authError"}]}})
            elif google.answers:
                self._answer(*google.answers.pop(0))
            else:
                self._object(parts.path, dict(parse_qsl(parts.query)), body)

    def _token(self, path: str, body: bytes) -> None:
        google = self.server
        google.grants.append(dict(parse_qsl(body.decode())))
        if path not in TOKENS:
            self._answer(200, {"email": "me@example.com", "scopes": []}, **{"Metadata-Flavor": "Google"})
        elif google.refusal:
            self._answer(*google.refusal)
        else:
            google.tokens += 1
            google.valid = f"token-{google.tokens:04d}"
            kind = "urn:ietf:params:oauth:token-type:access_token"
            answer = {"access_token": google.valid, "issued_token_type": kind, "token_type": "Bearer"}
            self._answer(200, {**answer, "expires_in": google.lifetime})

    def _object(self, path: str, query: dict[str, str], body: bytes) -> None:
        google = self.server
        bucket, _, rest = path.partition("/b/")[2].partition("/o")
        name = unquote(rest.removeprefix("/"))
        if bucket != "bucket":
            self._answer(404, b"The specified bucket does not exist.")
        elif "uploadType" in query and not self._matches(query["name"], query):
            self._answer(412, _FAILED)
        elif query.get("uploadType") == "resumable":
            session = str(len(google.asked))
            google.sessions[session] = query["name"], bytearray()
            self._answer(200, b"", Location=f"{google.endpoint}/upload/storage/v1/b/bucket/o?upload_id={session}")
        elif query.get("uploadType") == "media":
            google.objects[query["name"]] = len(google.asked), body
            self._answer(200, {})
        elif not name:
            self._list(query)
        elif name not in google.objects:
            self._answer(404, f"No such object: bucket/{name}".encode())
        elif self.command == "DELETE":
            del google.objects[name]
            self._answer(204, b"")
        else:
            generation, data = google.objects[name]
            if self._matches(name, query):
                self._answer(200, data, **{"X-Goog-Generation": str(generation)})
            else:
                self._answer(412, _FAILED)

    def _matches(self, name: str, query: dict[str, str]) -> bool:
        generation = str(self.server.objects.get(name, (0, b""))[0])
        return query.get("ifGenerationMatch", generation) == generation

    def _list(self, query: dict[str, str]) -> None:
        """Two objects a page."""
        names = [name for name in sorted(self.server.objects) if name.startswith(query["prefix"])]
        start = int(query.get("pageToken", "0"))
        items: list[dict[str, str]] = []
        for name in names[start : start + 2]:
            generation, data = self.server.objects[name]
            items.append({"name": name, "size": str(len(data)), "generation": str(generation)})
        page: dict[str, Any] = {"items": items} if items else {}
        self._answer(200, {**page, "nextPageToken": str(start + 2)} if start + 2 < len(names) else page)

    def _part(self, session: str, length: int) -> None:
        google = self.server
        if session not in google.sessions:
            self.rfile.read(length)
            self._answer(410, b"")
            return
        name, kept = google.sessions[session]
        place, _, total = self.headers["Content-Range"].removeprefix("bytes ").partition("/")
        if place != "*":
            assert int(place.partition("-")[0]) == len(kept)
            if google.cuts:
                kept += self.rfile.read(google.cuts.pop(0))
                self.close_connection = True
                return
            kept += self.rfile.read(length)
        elif google.forgets and google.forgets.pop(0):
            kept.clear()
        if len(kept) == int(total) and google.unready:
            google.unready -= 1
            self._answer(308, b"", Range=f"bytes=0-{len(kept) - 1}")
        elif len(kept) == int(total):
            google.objects[name] = len(google.asked), bytes(kept)
            self._answer(200, {"name": name})
        else:
            self._answer(308, b"", **({"Range": f"bytes=0-{len(kept) - 1}"} if kept else {}))

    def _answer(self, status: int, body: object, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        kind = "text/plain" if isinstance(body, bytes) else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _exchange  # noqa: N815  http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def google_server() -> Iterator[Google]:
    with Google() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="google")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
