"""Secrets are held in one kind of value: nothing else that a user can reach, log or print has their texts.

The walk goes through attributes, containers, errors with their causes, and the variables of the frames in tracebacks.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import mdsx
from mdsx.cli.app import app
from mdsx.secret import Secret
from mdsx.storage import open_storage, retry
from mdsx.torch import StreamingDataLoader, StreamingDataset
from mdsx.transfer.converting.source import Request
from mdsx.view import Opening
from mdsx.writer.runs import WriteJob
from tests.storage.remote.test_web import answering, send

PLANTED = "PLANTED"  # in every secret


def reached(root: object, *, given: object = None) -> Iterator[tuple[str, object]]:
    """Yield every object that `root` leads to, with the way to it; not `given`, which is the caller's own."""
    seen: dict[int, object] = {id(given): given}
    waiting: list[tuple[str, object]] = [("root", root)]
    while waiting:
        way, found = waiting.pop()
        if id(found) in seen or isinstance(found, Secret | type):
            continue
        seen[id(found)] = found
        yield way, found
        inside: dict[Any, object] = {}
        if isinstance(found, Mapping):
            inside = {f"[{key!r}]": value for key, value in found.items()} | {f" key {key!r}": key for key in found}
        elif isinstance(found, list | tuple | set | frozenset):
            inside = {f"[{number}]": value for number, value in enumerate(found)}
        elif isinstance(found, TracebackType):
            inside = {".frame": found.tb_frame, ".next": found.tb_next}
        elif isinstance(found, FrameType) and not found.f_globals.get("__name__", "").startswith(("tests.", "_py")):
            inside = {f" in {found.f_code.co_name}: {name}": value for name, value in found.f_locals.items()}
            inside = {name: value for name, value in inside.items() if not isinstance(value, TracebackType)}
        elif isinstance(found, BaseException):
            inside = {
                f".{name}": getattr(found, name) for name in ("__cause__", "__context__", "__traceback__", "args")
            }
        if type(found).__module__.startswith("mdsx") or isinstance(found, BaseException):
            slots = [name for each in type(found).__mro__ for name in getattr(each, "__slots__", ())]
            inside |= {f".{name}": getattr(found, name, None) for name in (*slots, *getattr(found, "__dict__", {}))}
        waiting += [(f"{way}{step}", value) for step, value in inside.items()]


def assert_holds_no_secret(*roots: object, given: object = None) -> None:
    for root in roots:
        for way, found in reached(root, given=given):
            if isinstance(found, str | bytes | bytearray | int | float):
                assert PLANTED not in str(found), way
            elif isinstance(found, BaseException):
                shown = traceback.TracebackException.from_exception(found).format()
                assert PLANTED not in "".join(shown), way
            elif type(found).__module__.startswith("mdsx"):
                with suppress(AttributeError):  # of an object whose constructor failed
                    assert PLANTED not in repr(found), way


def echo(request: BaseHTTPRequestHandler) -> None:
    said = f"no: {request.path} {unquote(request.path)} {dict(request.headers)}"
    send(request, 403, said.encode())


SAS = "sv=1&sig=PLANTED%2Bsignature"
KEY = "UExBTlRFRC1hY2NvdW50LWtleQ=="
OPTIONS: dict[str, dict[str, str]] = {
    "s3://bucket/x": {
        "access_key_id": "AKIAPLANTED12345",
        "secret_access_key": "PLANTED/secret+key",
        "token": "PLANTED-session",
    },
    "gs://bucket/x": {"token": "PLANTED-token"},
    "hf://datasets/a/b": {"token": "PLANTED-token"},
    "az://c/bearer": {"account": "a", "token": "PLANTED-token"},
    "az://c/sas": {"account": "a", "sas_token": SAS},
    "az://c/key": {"account": "a", "account_key": KEY},
    "az://c/connection": {"connection_string": f"AccountName=a;SharedAccessSignature={SAS}"},
    "http://HOST/x": {"token": "PLANTED-token"},
    "http://user:PLANTED-password@HOST/x": {},
    "http://HOST/x?key=PLANTED%2Bkey&st=1": {},
    "http://HOST/y": {"user": "user", "password": "PLANTED-password"},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(retry, "TRIES", 1)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("url", [*OPTIONS])
def test_storages_and_their_errors_hold_no_secret(url: str, caplog: pytest.LogCaptureFixture) -> None:
    given = dict(OPTIONS[url])
    with answering(echo) as server:
        if "HOST" not in url:
            given["endpoint"] = f"{server}/a" if url.startswith("az") else server
        storage = open_storage(url.replace("HOST", server.removeprefix("http://")), given)
        errors: list[BaseException] = []
        for ask in (lambda: storage.get("index.json"), lambda: list(storage.list()), lambda: storage.put("k", b"x")):
            try:
                ask()
            except mdsx.MdsxError as error:
                errors.append(error)
        with pytest.raises(mdsx.MdsxError) as raised:
            mdsx.Dataset(storage.url, storage_options=given)
        errors.append(raised.value)
    with pytest.raises(mdsx.MdsxError) as raised:  # nothing listens now
        storage.get("index.json")
    errors.append(raised.value)
    assert_holds_no_secret(storage, *errors, given=given)
    assert "PLANTED" not in caplog.text.replace(repr(given), "")
    assert KEY not in caplog.text


def test_what_keeps_options_shows_none() -> None:
    given = OPTIONS["s3://bucket/x"] | {"endpoint": "http://user:PLANTED@host"}
    kept: list[object] = [
        mdsx.Component("s3://bucket/x", storage_options=given),
        Opening(storage_options=given),
        WriteJob("s3://b/x", {"a": "str"}, 1, None, "0" * 16, given),
        Request([], {}, {}, [], False, given),
    ]
    assert_holds_no_secret(*kept, given=given)


def test_datasets_loaders_and_commands_hold_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with mdsx.Writer(tmp_path / "data", {"n": "int64"}) as out:
        for number in range(20):
            out.write({"n": number})

    def serve(request: BaseHTTPRequestHandler) -> None:
        allowed = request.headers.get("Authorization") == "Bearer PLANTED-token" and "key=PLANTED" in request.path
        file = tmp_path / "data" / urlsplit(request.path).path.rpartition("/")[2]
        if allowed and file.is_file():
            send(request, 200, file.read_bytes(), ETag='"x"')
        else:
            send(request, 404 if allowed else 403)

    given = {"token": "PLANTED-token"}
    with answering(serve) as server:
        url = f"{server}/data?key=PLANTED-key"
        dataset = mdsx.Dataset(url, storage_options=given, cache=tmp_path / "cache")
        mixture = mdsx.Mixture({"a": mdsx.Component(dataset, 1), "b": mdsx.Component(dataset, 1)})
        loader = StreamingDataLoader(StreamingDataset(dataset), batch_size=5)
        batches = iter(loader)
        next(batches)
        assert_holds_no_secret(dataset, mixture, loader, batches, given=given)
        assert PLANTED not in repr(loader.state_dict())
        for command in (["info", "--json"], ["doctor", "--json"], ["cat", "--json"]):
            with suppress(SystemExit):
                app([*command, url, "--storage-option", "token=PLANTED-token"], standalone_mode=False)
    printed = capsys.readouterr()
    assert '"n"' in printed.out
    assert PLANTED not in printed.out + printed.err + caplog.text
    assert not any(PLANTED.encode() in path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_doctor_names_a_proxy_without_its_login(
    scheme: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(lambda request: send(request, 404)) as proxy:
        host = proxy.removeprefix("http://")
        monkeypatch.setenv("http_proxy", f"{scheme}user:PLANTED-password@{host}")
        monkeypatch.setenv("no_proxy", "")
        with suppress(SystemExit):
            app(["doctor", "http://data.invalid/x", "--json"], standalone_mode=False)
    printed = capsys.readouterr()
    assert f"through the proxy http://{host}" in printed.out
    assert PLANTED not in printed.out + printed.err
