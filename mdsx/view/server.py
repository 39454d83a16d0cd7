"""The page's server: on this machine only, and only for requests with the token in the address.

Every answer has a content security policy, under which a browser runs and loads only the page's own files. Requests
without the token are refused (403), and so are requests for other host names, by which pages elsewhere could reach this
server (DNS rebinding).
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import PurePath
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mdsx.base import pages
from mdsx.errors import CorruptError, MdsxError, MissingError, TransportError, UsageError
from mdsx.view.library import Library
from mdsx.view.source import ViewedDataset

HOST = "127.0.0.1"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
"""The headers of every answer."""

_HOSTS = ("127.0.0.1", "localhost")  # with any port: a tunnel may have another one
_SCRIPTS = ("app.js", "charts.js", "dom.js", "order.js", "overview.js", "samples.js", "shards.js", "values.js")
_NAMES = ("", "view.css", "icon.svg", *_SCRIPTS, *pages.NAMES)
"""The names that are answered. The empty one is the page."""
_MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SHARDS = 200  # in one answer, at most
_SCAN_SECONDS = 1.0
_SCAN_SAMPLES = 100_000
_STATUS = ((UsageError, 400), (MissingError, 404), (CorruptError, 422), (TransportError, 502))
_PATIENCE = 2.0  # seconds that requests in flight get at the end
_CHECKS = 2  # at a time: each has a shard in memory

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Number(IntegerConvertor):
    """A number in a path. Python refuses to convert thousands of digits."""

    regex = "[0-9]{1,18}"


register_url_convertor("number", _Number())


def application(library: Library, token: str) -> Guard:
    """Return the server's application: the page is at `/TOKEN/`."""
    api = _Api(library)
    routes = [
        Route("/api/overview", api.overview),
        Route("/api/order", api.order),
        Route("/api/{dataset:number}/samples", api.samples),
        Route("/api/{dataset:number}/samples/{number:number}", api.sample),
        Route("/api/{dataset:number}/samples/{number:number}/picture", api.picture),
        Route("/api/{dataset:number}/samples/{number:number}/text", api.text),
        Route("/api/{dataset:number}/search", api.search),
        Route("/api/{dataset:number}/shards", api.shards),
        Route("/api/{dataset:number}/sizes", api.sizes),
        Route("/api/{dataset:number}/shards/{shard:number}/check", api.check, methods=["POST"]),
        Route("/{name:path}", _asset),
    ]
    app = Starlette(routes=routes, exception_handlers={MdsxError: _failed, Exception: _failed})
    return Guard(app, token)


class Guard:
    """Passes on requests whose path begins with the token and whose host name is this machine's."""

    def __init__(self, app: Starlette, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = [(name, value) for name, value in message["headers"] if name.decode() not in HEADERS]
                message["headers"] = [*given, *((name.encode(), value.encode()) for name, value in HEADERS.items())]
            await send(message)

        _, found, rest = scope["path"].partition("/")
        given, slash, rest = rest.partition("/")
        if not self._is_here(scope) or not secrets.compare_digest(given.encode(), self._token) or not (found and slash):
            await Response("403: open the address that `mdsx view` printed", 403)(scope, receive, send_guarded)
            return
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "root_path": ""}
        await self._app(inner, receive, send_guarded)

    @staticmethod
    def _is_here(scope: Scope) -> bool:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        name, colon, port = hosts[0].rpartition(":")
        return (name if colon and port.isdigit() else hosts[0]).lower() in _HOSTS


class _Api:
    """Answers the page's questions. Starlette calls these methods in threads."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._checks = threading.BoundedSemaphore(_CHECKS)

    def overview(self, request: Request) -> Response:
        return _json(self._library.overview())

    def order(self, request: Request) -> Response:
        return _json(self._library.order(dict(request.query_params)))

    def samples(self, request: Request) -> Response:
        start, count = _number(request, "start"), _number(request, "count", 10)
        return _json(self._source(request).samples(start, count))

    def sample(self, request: Request) -> Response:
        return _json(self._source(request).sample(request.path_params["number"]))

    def picture(self, request: Request) -> Response:
        item = _number(request, "item") if "item" in request.query_params else None
        column = request.query_params.get("column", "")
        media, data = self._source(request).picture(request.path_params["number"], column, item)
        return Response(data, media_type=media)

    def text(self, request: Request) -> Response:
        column = request.query_params.get("column", "")
        return _json(self._source(request).text(request.path_params["number"], column, _number(request, "start")))

    def search(self, request: Request) -> Response:
        start = _number(request, "start")
        span = range(start, min(_number(request, "stop", 2**62), start + _SCAN_SAMPLES))
        column, text = request.query_params.get("column", ""), request.query_params.get("text", "")
        return _json(self._source(request).search(column, text, span, _SCAN_SECONDS))

    def shards(self, request: Request) -> Response:
        start, count = _number(request, "start"), _number(request, "count", 50)
        return _json(self._source(request).shards(start, min(count, _SHARDS)))

    def sizes(self, request: Request) -> Response:
        return _json(self._source(request).sizes())

    def check(self, request: Request) -> Response:
        with self._checks:
            return _json(self._source(request).check(request.path_params["shard"]))

    def _source(self, request: Request) -> ViewedDataset:
        return self._library.source(request.path_params["dataset"])


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _NAMES:
        return Response("404: there is no such page", 404)
    file = name or "index.html"
    text = pages.asset(file) if file in pages.NAMES else pages.own("mdsx.view", file)
    return Response(text, media_type=_MEDIA[PurePath(file).suffix])


def _json(value: object, status: int = 200) -> Response:
    """Return an answer in ASCII, which escapes lone surrogates too."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def _number(request: Request, name: str, default: int = 0) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise UsageError(f"{name} must be an integer of at least 0")
    return int(text)


def _failed(_request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return _json({"error": {"kind": type(error).__name__, "message": str(error)[:2000]}}, status)


class Server:
    """Serves `library` on a port of this machine; 0 is any free one. It is a context manager.

    Raise UsageError if the port is taken.
    """

    def __init__(self, library: Library, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen()  # a browser that opens the address at once waits for `run`
        except OSError as error:
            self._socket.close()
            hint = "give another --port, or 0 for any free one"
            raise UsageError(f"port {port} cannot be used: {error.strerror}", hint=hint) from None
        token = secrets.token_urlsafe(24)
        self.address = f"http://{HOST}:{self._socket.getsockname()[1]}/{token}/"
        config = uvicorn.Config(
            application(library, token),
            log_level="error",
            access_log=False,  # it would show the token
            server_header=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def run(self) -> None:
        """Serve until `stop`, or until Ctrl-C, which raises KeyboardInterrupt.

        A request that is waiting for its storage does not delay the end: its thread may outlive this call.
        """
        serving = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="mdsx-view", daemon=True
        )
        serving.start()
        try:
            serving.join()
        except KeyboardInterrupt:
            self.stop()
            serving.join(_PATIENCE)
            raise

    def stop(self) -> None:
        """Make `run`, in another thread, return."""
        self._server.should_exit = True
