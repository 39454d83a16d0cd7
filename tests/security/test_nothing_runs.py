"""Nothing in a dataset, a tar or a state is unpickled or executed, and no URL in it is followed."""

from __future__ import annotations

import ast
import http.server
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import msgpack
import numpy as np
import pytest

import mdsx
from mdsx.format import Schema, build_index
from mdsx.transfer.converting import convert
from tests.foreign.tars.tars import npy, tar_bytes
from tools.servers.s3 import S3Server

PACKAGE = Path(mdsx.__file__).parent
_MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "code", "codeop", "runpy", "yaml",
    "subprocess", "pty", "commands", "ctypes", "PIL", "imp", "xml", "webbrowser", "requests", "http", "urllib.request",
    "socket",
}  # fmt: skip
_CALLS = {
    "eval", "exec", "compile", "__import__", "globals", "breakpoint", "input", "os.system", "os.popen", "os.execv",
    "os.execve", "os.spawnv", "os.posix_spawn", "np.load", "numpy.load", "torch.load", "np.fromregex", "pd.read_pickle",
    "importlib.import_module",
}  # fmt: skip
_ALLOWED = {
    ("__init__.py", "importlib.import_module"),  # the public page's own modules, on first use of their names
    ("engines/__init__.py", "importlib.import_module"),  # the module of an engine, on first use
    ("__init__.py", "globals"),
    ("transfer/converting/building.py", "pickle"),  # only writes: whether a function can be sent, and a hash of inputs
    ("foreign/mds/values.py", "PIL.Image"),  # makes images of pixels whose mode and size were checked
    ("decoding/headers.py", "PIL.Image"),  # opens pictures, and reads only their headers
    ("decoding/pictures.py", "PIL"),  # decodes formats from a list, up to a number of pixels
    ("decoding/pictures.py", "PIL.Image"),  # the same
    ("base/system.py", "ctypes"),  # maps a file over its own memory, and limits the arenas of the C library
    ("quickstart/lives.py", "subprocess"),  # the training, which is killed
    ("quickstart/program.py", "np.load"),  # its own checkpoint, without pickles
    ("cli/app.py", "importlib.import_module"),  # the modules of `mdsx/cli`
    ("transfer/converting/conversion.py", "importlib.import_module"),  # the converter of a kind, from a table
    ("storage/__init__.py", "importlib.import_module"),  # the storage of a scheme, from a table
    ("checks/doctor/endpoint.py", "socket"),  # looks the host up
    ("checks/doctor/machine.py", "subprocess"),  # tries a file lock against another process
    ("storage/remote/trust.py", "urllib.request"),  # the proxies of the environment
    ("transfer/converting/hf_loading.py", "yaml"),  # only safe_load, of a dataset's description
    ("storage/remote/storage.py", "socket"),  # asks the configured endpoint whether it supports TLS
    ("storage/remote/answer.py", "http.client"),  # its errors
    ("storage/remote/answer.py", "http.client.HTTPException"),  # its errors
    ("storage/remote/az_identity.py", "requests"),  # sends azure-identity's requests through bounded connections
    (
        "storage/remote/az_identity.py",
        "requests.adapters",
    ),  # sends azure-identity's requests through bounded connections
    (
        "storage/remote/az_identity.py",
        "requests.adapters.HTTPAdapter",
    ),  # sends azure-identity's requests through bounded connections
    ("storage/remote/gs_credentials.py", "http.client"),  # its errors
    ("storage/remote/gs_credentials.py", "http.client.HTTPException"),  # its errors
    ("storage/remote/parse.py", "xml.etree.ElementTree"),  # listings and errors, without document types and with bounds
    ("storage/remote/parse.py", "xml.parsers"),  # listings and errors, without document types and with bounds
    ("storage/remote/parse.py", "xml.parsers.expat"),  # listings and errors, without document types and with bounds
    ("storage/remote/answer.py", "http.client"),  # reads answers with bounds
    ("cli/view.py", "webbrowser"),  # opens the address of its own server
    ("view/server.py", "socket"),  # a port of this machine
    ("base/work/failures.py", "pickle"),  # between the processes of one job, as multiprocessing does
    ("base/work/parcels.py", "pickle"),  # the same
    ("base/work/parcels.py", "pickle.PickleBuffer"),  # the same
    ("base/work/processes.py", "pickle"),  # the same
    ("base/work/worker.py", "pickle"),  # the same
    ("torch/tensors.py", "pickle"),  # the same
    ("torch/tensors.py", "pickle.PickleBuffer"),  # the same
}


def suspicious(node: ast.AST) -> set[str]:
    """Yield the modules that a statement imports, or the function that it calls, if they could run data."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    elif isinstance(node, ast.Call):
        asked = {f"{word.arg}=True" for word in node.keywords if word.arg in ("allow_pickle", "shell")}
        return asked | ({ast.unparse(node.func)} & _CALLS)
    else:
        return set()
    return {name for name in names if name in _MODULES or name.split(".")[0] in _MODULES or name in _CALLS}


def test_the_package_has_nothing_that_could_run_data() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name): node
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "testing"  # tests, which get no data of others
        for node in ast.walk(ast.parse(path.read_text()))
        for name in suspicious(node)
    }
    assert set(found) == _ALLOWED


class Bait:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_pickles_stay_bytes(tmp_path: Path) -> None:
    bait = pickle.dumps(Bait(tmp_path / "taken"))
    columns = {"raw": "bytes", "pack": "msgpack"}
    with mdsx.Writer(tmp_path / "ds", columns) as out:
        out.write({"raw": bait, "pack": {"a": bait}})
    assert mdsx.Dataset(tmp_path / "ds")[0] == {"raw": bait, "pack": {"a": bait}}
    members = [("a.pkl", bait), ("a.pyd", bait), ("a.msgpack", msgpack.packb([bait])), ("a.npy", npy(np.arange(3)))]
    (tmp_path / "a.tar").write_bytes(tar_bytes(members))
    convert("tar", [str(tmp_path / "a.tar")], tmp_path / "out")
    assert mdsx.Dataset(tmp_path / "out")[0]["pkl"] == bait
    (tmp_path / "b.tar").write_bytes(
        tar_bytes([("a.npy", npy(np.array([Bait(tmp_path / "taken")]), allow_pickle=True))])
    )
    with pytest.raises(mdsx.MdsxError, match="never loaded"):
        convert("tar", [str(tmp_path / "b.tar")], tmp_path / "objects")
    assert not (tmp_path / "taken").exists()


_URLS = ["http://127.0.0.1:9/x", "s3://elsewhere/x", "https://example.org/x", "file:///etc/passwd", "//host/share"]


def test_no_url_in_a_dataset_is_followed(tmp_path: Path) -> None:
    """An audit hook sees each connection, name look-up and process while everything in a dataset is read."""
    links = {"$ref": _URLS[0], "url": _URLS, "@import": _URLS[1], "__class__": "os.system", "jsonschema": _URLS[2]}
    columns = {"text": "str", "tree": "json", "pack": "msgpack", "image": "png"}
    svg = b"\x89PNG\r\n\x1a\n<svg xlink:href='http://127.0.0.1:9/x'/>"
    with mdsx.Writer(tmp_path / "ds", columns, compression="zstd", metadata=links) as out:
        for url in _URLS:
            out.write({"text": url, "tree": links, "pack": links, "image": svg})
    (tmp_path / "a.tar").write_bytes(tar_bytes([(f"{k}.txt", url.encode()) for k, url in enumerate(_URLS)]))
    script = """
        import sys
        seen = []
        watched = ("socket.connect", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen", "os.system", "os.exec")
        import mdsx, mdsx.torch, mdsx.checks.damage, torch
        from mdsx.transfer.converting import convert
        sys.addaudithook(lambda event, args: seen.append((event, args)) if event.startswith(watched) else None)
        folder = sys.argv[1]
        dataset = mdsx.Dataset(folder + "/ds", cache=mdsx.Cache(folder + "/cache", limit="10MB"))
        dataset[:], dataset.metadata
        assert not list(mdsx.checks.damage.verify(folder + "/ds"))
        cache = mdsx.Cache(folder + "/cache", limit="10MB")
        stream = mdsx.torch.StreamingDataset(folder + "/ds", cache=cache, batch_size=2)
        assert sum(len(batch["text"]) for batch in mdsx.torch.StreamingDataLoader(stream, batch_size=2)) >= 4
        convert("tar", [folder + "/a.tar"], folder + "/out")
        assert not seen, seen
        import socket
        try:
            socket.create_connection(("127.0.0.1", 9))
        except OSError:
            pass
        assert seen, "the hook sees nothing"
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def trap() -> Iterator[tuple[str, list[str]]]:
    """A server that redirects each request to itself under another name: its address, and the requests it got."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Host']}{self.path}")
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{server.server_port}/stolen")
            self.send_header("x-amz-bucket-region", "eu-west-1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_no_redirection_of_a_storage_is_followed(
    trap: tuple[str, list[str]], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials go only to the endpoint that the user named."""
    address, asked = trap
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(mdsx.TransportError, match="307"):
        mdsx.Dataset("s3://bucket/corpus")
    assert asked
    assert all(request.startswith(address.removeprefix("http://")) for request in asked)


def test_special_keys_in_an_index_have_no_effect(tmp_path: Path) -> None:
    """Keys with a meaning in other formats have none here."""
    schema = Schema.from_columns({"a": "str"})
    (tmp_path / "index.json").write_bytes(build_index(schema, None, [], {"__proto__": {"a": 1}, "$include": "x.json"}))
    assert json.dumps(mdsx.Dataset(tmp_path).metadata) == '{"__proto__": {"a": 1}, "$include": "x.json"}'
