"""Reading from web servers: what every storage promises about reading, and what only web servers do."""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import mdsx
from mdsx.storage import describe, open_storage, retry
from mdsx.torch import StreamingDataset
from tests.forks import as_another_user, let_through
from tools.servers.http import HttpServer

DATA = bytes(range(256)) * 20


@pytest.fixture(scope="module", params=[True, False], ids=["ETag", "Last-Modified"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with HttpServer(tmp_path_factory.mktemp("web"), etags=request.param) as running:
        yield running


def test_ranges_and_whole_files_are_read(server: HttpServer) -> None:
    (server.directory / "a b").mkdir()
    (server.directory / "a b" / "x%y.bin").write_bytes(DATA)
    storage = open_storage(server.url("a b"))
    assert storage.get("x%y.bin").data == DATA
    assert storage.get("x%y.bin", start=3, stop=7).data == DATA[3:7]
    assert storage.get("x%y.bin", start=len(DATA) - 2, stop=len(DATA) + 99).data == DATA[-2:]
    assert storage.get("x%y.bin", start=3, stop=7).total == len(DATA)
    with pytest.raises(mdsx.TruncatedError, match="x%y"):
        storage.get("x%y.bin", start=len(DATA), stop=len(DATA) + 5)
    chunks: list[bytes] = []
    storage.download("x%y.bin", chunks.append, size=len(DATA))
    assert b"".join(chunks) == DATA
    with pytest.raises(mdsx.MissingError, match="absent"):
        storage.get("absent")


def test_a_replaced_file_is_noticed(server: HttpServer) -> None:
    file = server.directory / "replaced.bin"
    file.write_bytes(DATA)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    storage = open_storage(server.endpoint)
    etag = storage.get("replaced.bin").etag
    assert storage.get("replaced.bin", start=1, stop=2, etag=etag).data == DATA[1:2]
    file.write_bytes(DATA[::-1])
    with pytest.raises(mdsx.ChangedError, match=r"replaced\.bin"):
        storage.get("replaced.bin", start=1, stop=2, etag=etag)
    with pytest.raises(mdsx.ChangedError, match=r"replaced\.bin"):
        storage.download("replaced.bin", lambda chunk: None, size=len(DATA), etag=etag)


def test_a_dataset_is_streamed_and_verified(server: HttpServer, tmp_path: Path) -> None:
    with mdsx.Writer(server.directory / "set", {"n": "int64"}, shard_size=2000) as out:
        for n in range(1000):
            out.write({"n": n})
    url = server.url("set")
    assert mdsx.verify(url).ok
    batches = StreamingDataset(url, cache=tmp_path / "cache", batch_size=10)
    read = [n for batch in batches for n in batch["n"].tolist()]
    assert sorted(read) == list(range(1000))


def test_a_default_cache_in_a_closed_folder_is_bypassed(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container of another user than root, whose home it still has."""
    with mdsx.Writer(server.directory / "alone", {"n": "int64"}) as out:
        out.write_batch({"n": list(range(50))})
    (tmp_path / "root").mkdir(mode=0o700)
    let_through(tmp_path)

    def read() -> tuple[list[int], list[str]]:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            batches = [*StreamingDataset(server.url("alone"), batch_size=10)]
        return [n for batch in batches for n in batch["n"].tolist()], [str(warning.message) for warning in warned]

    expected, _ = read()
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "root" / "cache"))
    found, (warned,) = as_another_user(read, denied=tmp_path / "root")
    assert found == expected
    assert "root/cache: the cache takes no more shards: it cannot be made (Permission denied)" in warned


@pytest.mark.parametrize("content", [None, "no certificates"])
def test_certificates_that_cannot_be_read_are_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """So nothing is tried again."""
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with pytest.raises(mdsx.UsageError, match=r"bundle\.pem: the certificates cannot be read: .*REQUESTS_CA_BUNDLE"):
        mdsx.Dataset("https://localhost:9/data")


def test_it_is_neither_listed_nor_written(server: HttpServer) -> None:
    storage = open_storage(server.endpoint)
    with pytest.raises(mdsx.UsageError, match="cannot list"):
        list(storage.list())
    with pytest.raises(mdsx.UsageError, match="read-only"):
        mdsx.Writer(server.url("new"), {"n": "int64"})


def test_a_password_is_used_and_not_shown(tmp_path: Path) -> None:
    with HttpServer(tmp_path, login=("reader", "pass/word%")) as server:
        (tmp_path / "x").write_bytes(DATA)
        url = server.endpoint.replace("http://", "http://reader:pass%2Fword%25@")
        assert open_storage(url).get("x").data == DATA
        with pytest.raises(mdsx.ForbiddenError) as caught:
            open_storage(url.replace("word", "ward")).get("x")
        assert "ward" not in str(caught.value)
        assert "reader" not in repr(open_storage(url)) + open_storage(url).url


# --- servers that do only a part of it

Reply = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(reply: Reply) -> Iterator[str]:
    """Serve `reply` to each GET, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def send(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def test_a_server_without_ranges_is_read_exactly() -> None:
    with answering(lambda request: send(request, 200, DATA)) as url:
        assert open_storage(url).get("x", start=5, stop=9).data == DATA[5:9]


def test_an_empty_file_that_has_no_ranges_is_described() -> None:
    with answering(lambda request: send(request, 416 if request.headers["Range"] else 200)) as url:
        assert describe(open_storage(url), "x").size == 0


def test_a_server_that_hides_the_size_is_refused() -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(DATA)

    with answering(reply) as url, pytest.raises(mdsx.TransportError, match="Content-Length"):
        open_storage(url).get("x")


def test_redirects_go_to_named_hosts_without_credentials() -> None:
    seen: dict[str, str | None] = {}

    def reply(request: BaseHTTPRequestHandler) -> None:
        host = request.headers["Host"].partition(":")[0]
        seen[f"{host}{request.path}"] = request.headers.get("Authorization")
        match request.path:
            case "/set/x":
                send(request, 302, Location="/moved/x")
            case "/moved/x":
                port = request.headers["Host"].partition(":")[2]
                send(request, 307, Location=f"http://localhost:{port}/elsewhere/x?sig=of-the-link")
            case "/loop/x":
                send(request, 301, Location="/loop/x")
            case _:
                send(request, 200, DATA)

    with answering(reply) as url:
        with pytest.raises(mdsx.TransportError, match=r"another host.*redirects='localhost'"):
            open_storage(f"{url}/set", {"token": "TOKEN-of-mine"}).get("x")
        assert not any(place.startswith("localhost") for place in seen)
        storage = open_storage(f"{url}/set", {"token": "TOKEN-of-mine", "redirects": "*.example.org, localhost"})
        assert storage.get("x").data == DATA
        assert seen == {
            "127.0.0.1/set/x": "Bearer TOKEN-of-mine",
            "127.0.0.1/moved/x": "Bearer TOKEN-of-mine",
            "localhost/elsewhere/x?sig=of-the-link": None,
        }
        with pytest.raises(mdsx.TransportError, match="redirects"):
            open_storage(f"{url}/loop").get("x")


def test_a_signed_query_is_sent_and_not_shown() -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        send(request, *((200, DATA) if request.path == "/set/x?st=1&sig=SIGNATURE" else (403, request.path.encode())))

    with answering(reply) as url:
        assert open_storage(f"{url}/set?st=1&sig=SIGNATURE").get("x").data == DATA
        with pytest.raises(mdsx.ForbiddenError) as caught:
            open_storage(f"{url}/set?st=2&sig=SIGNATURE").get("x")
        assert "SIGNATURE" not in str(caught.value)


def test_a_pause_that_the_server_asks_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retry, "wait", waits.append)
    replies = iter([(429, 7), (503, 11), (200, 0)])

    def reply(request: BaseHTTPRequestHandler) -> None:
        status, seconds = next(replies)
        send(request, status, DATA if status == 200 else b"", **({"Retry_After": str(seconds)} if seconds else {}))

    with answering(reply) as url:
        assert open_storage(url).get("x").data == DATA
    assert waits == [7, 11]


@pytest.mark.parametrize("url", ["https://user:12ab/cd@host/x", "https://", "http://host/x#part", "https://a b/x"])
def test_what_is_no_url_of_a_server_raises(url: str) -> None:
    with pytest.raises(mdsx.UsageError) as caught:
        open_storage(url)
    assert "12ab" not in str(caught.value)


@pytest.mark.parametrize("options", [{"region": "x"}, {"token": 5}, {"connect_timeout": "soon"}, ["token"]])
def test_an_option_of_another_storage_or_type_raises(options: dict[str, object]) -> None:
    with pytest.raises(mdsx.UsageError, match=r"option|seconds"):
        open_storage("https://host/x", options)


@pytest.mark.parametrize(("headers", "shown"), [({}, "no Content-Range"), ({"Content_Range": "bytes 5-8/*"}, "8/")])
def test_a_part_that_is_not_named_is_refused(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], shown: str
) -> None:
    monkeypatch.setattr(retry, "pause", lambda failures: None)
    with answering(lambda request: send(request, 206, DATA[5:9], **headers)) as url:
        with pytest.raises(mdsx.TransportError, match=f"do not say which part.*{shown}"):
            open_storage(url).get("x", start=5, stop=9)
        with pytest.raises(mdsx.TransportError, match="do not say which part"):
            open_storage(url).get("x", start=0, stop=4)


@pytest.mark.parametrize("status", [302, 307])
def test_credentials_do_not_follow_a_redirect_to_another_port(status: int) -> None:
    seen: list[str | None] = []

    def other(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers.get("Authorization"))
        send(request, 200, DATA)

    with (
        answering(other) as elsewhere,
        answering(lambda request: send(request, status, Location=f"{elsewhere}/x")) as url,
    ):
        assert open_storage(url, {"token": "TOKEN-of-mine"}).get("x").data == DATA
    assert seen == [None]


@pytest.mark.parametrize("location", ["file:///etc/hostname", "http://[bad/x", "http://host:port/x"])
def test_a_redirect_to_what_is_no_web_server_raises(location: str) -> None:
    with (
        answering(lambda request: send(request, 302, Location=location)) as url,
        pytest.raises(mdsx.TransportError, match="x: the server redirects to"),
    ):
        open_storage(url).get("x")


@pytest.mark.parametrize("url", ["https:/user:12ab@host/x", "https:/host/x?key=12ab"])
def test_a_url_with_one_slash_shows_no_secret(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="two slashes") as caught:
        open_storage(url)
    assert "12ab" not in str(caught.value)


@pytest.mark.parametrize("token", ["TOKEN-of-mine\n", " TOKEN-of-mine", "TOKEN-of\r\n-mine", "TOKEN-of-mine€"])
@pytest.mark.parametrize("url", ["https://host/x", "s3://bucket/x", "gs://bucket/x", "az://c/x", "hf://datasets/o/n"])
def test_a_token_that_no_header_can_carry_raises_without_showing_it(url: str, token: str) -> None:
    with pytest.raises(mdsx.UsageError, match="token: the option has") as caught:
        open_storage(url, {"token": token})
    assert "TOKEN" not in str(caught.value)


def test_a_replaced_file_is_noticed_although_one_answer_had_no_etag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "pause", lambda failures: None)
    etags = iter(['"one"', None, '"two"'])

    def reply(request: BaseHTTPRequestHandler) -> None:
        etag = next(etags)
        request.send_response(200)
        request.send_header("Content-Length", str(len(DATA)))
        if etag:
            request.send_header("ETag", etag)
        request.end_headers()
        request.wfile.write(DATA if etag == '"two"' else DATA[:100])

    with answering(reply) as url, pytest.raises(mdsx.ChangedError, match="x: the object was replaced"):
        open_storage(url).download("x", lambda chunk: None, size=len(DATA))


@pytest.mark.parametrize("page", [b"<html>", b"[1]", b'{"sha": 5}'])
def test_what_is_no_answer_of_the_hub_raises(page: bytes) -> None:
    with (
        answering(lambda request: send(request, 200, page)) as endpoint,
        pytest.raises(mdsx.TransportError, match="org/set: the endpoint did not return a response of the Hub"),
    ):
        list(open_storage("hf://datasets/org/set", {"endpoint": endpoint, "anonymous": True}).list())


@pytest.mark.parametrize("url", ["http://h/set?sig=abc", "az://c@acc.blob.core.windows.net/set", "s3://bucket/set"])
def test_the_debug_lines_of_other_packages_show_no_secret(url: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "h": {},
        "a": {"sas_token": "sv=1&sig=PLANTED-signature"},
        "s": {"access_key_id": "KEY", "secret_access_key": "a-secret-key", "region": "x", "token": "PLANTED-token"},
    }[url[0]]
    with caplog.at_level("DEBUG"), answering(lambda request: send(request, 200, DATA)) as endpoint:
        if options:
            options["endpoint"] = endpoint
        else:
            url = f"{endpoint}/set?key=PLANTED-query"
        assert open_storage(url, options).get("x").data == DATA
    assert "GET" in caplog.text
    assert "PLANTED" not in caplog.text


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_proxy_gets_its_password(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    seen: list[tuple[str, str | None]] = []

    def reply(request: BaseHTTPRequestHandler) -> None:
        seen.append((request.path, request.headers.get("Proxy-Authorization")))
        send(request, 200, DATA)

    with answering(reply) as proxy:
        monkeypatch.setenv("http_proxy", f"{scheme}user:pass%2Fword@{proxy.removeprefix('http://')}")
        monkeypatch.setenv("no_proxy", "")
        assert open_storage("http://host.invalid/set").get("x").data == DATA
    assert seen == [("http://host.invalid/set/x", f"Basic {b64encode(b'user:pass/word').decode()}")]


@pytest.mark.parametrize("proxy", ["socks5://user:12ab@host:1", "http://user:12ab@[bad"])
def test_a_wrong_proxy_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(mdsx.TransportError, match="environment's proxy") as caught:
        open_storage("http://host.invalid/set").get("x")
    assert "12ab" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["http://host", "s3://bucket/set"])
def test_every_cloud_waits_as_long_as_its_server_asks(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retry, "wait", waits.append)
    statuses = iter([503, 200])
    with answering(lambda request: send(request, next(statuses), DATA, Retry_After="7")) as endpoint:
        options = {"endpoint": endpoint, "anonymous": True} if url.startswith("s3") else None
        assert open_storage(url if options else endpoint, options).get("x").data == DATA
    assert waits == [7]


def test_a_percent_sign_in_a_url_is_one() -> None:
    asked: list[str] = []

    def reply(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        send(request, 200, DATA)

    with answering(reply) as url:
        open_storage(f"{url}/100%/a%20b").get("x y%")
    assert asked == ["/100%25/a%20b/x%20y%25"]


def test_no_answer_can_show_the_password_of_a_url() -> None:
    with answering(lambda request: send(request, 403, b"no PLANTED/password")) as url:
        with_password = url.replace("://", "://user:PLANTED%2Fpassword@")
        with pytest.raises(mdsx.ForbiddenError, match=r"403 no \*\*\*") as caught:
            open_storage(with_password).get("x")
    assert "PLANTED" not in str(caught.value)


@pytest.mark.parametrize("place", ["endpoint", "Location"])
def test_what_is_no_url_of_the_hub_raises(place: str) -> None:
    wrong = "http://user:12ab@[bad"
    with answering(lambda request: send(request, 302, Location=wrong)) as url:
        endpoint = wrong if place == "endpoint" else url
        with pytest.raises(mdsx.MdsxError, match="not a URL") as caught:
            open_storage("hf://datasets/org/set", {"endpoint": endpoint}).get("x")
    assert "12ab" not in str(caught.value)


def test_a_long_page_of_an_error_is_shortened() -> None:
    page = b"<html>" + b"://a:" * 10_000
    with (
        answering(lambda request: send(request, 403, page)) as url,
        pytest.raises(mdsx.ForbiddenError, match="403 <html>") as caught,
    ):
        open_storage(url).get("x")
    assert len(str(caught.value)) < 1000
