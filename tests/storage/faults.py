"""A tiny HTTP server that speaks just enough S3 to misbehave in a chosen way, for the tests."""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request. Faults use `send` with what they want to be wrong."""

    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Range", ""))
        number = len(self.server.asked) - 1
        fault = self.server.faults[number] if number < len(self.server.faults) else None
        (fault or Request.well)(self)

    def well(self) -> None:
        """As S3 does it."""
        data = self.server.data
        if self.headers.get("If-Match") not in (None, etag(data)):
            self.error(412, "PreconditionFailed")
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            self.send(200, data)
            return
        start, stop = int(match[1]), int(match[2] or len(data)) + 1
        part = data[start:stop]
        self.send(206, part, {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"})

    def send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"ETag": etag(self.server.data), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>told so</Message></Error>".encode()
        self.send(status, body, {"Content-Type": "application/xml"})

    def reset(self) -> None:
        """Break the connection off, with a TCP reset."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class FaultyServer(ThreadingHTTPServer):
    """Serves `data` under every key; request number n is answered by `faults[n]`, those behind them well."""

    daemon_threads = True

    def __init__(self, data: bytes, faults: list[Answer | None]) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.data = data
        self.faults = faults
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Broken connections are what we are here for."""

    def __enter__(self) -> FaultyServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'
