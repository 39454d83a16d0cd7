"""What tests share: one real S3 server for each test process, and how often to try random cases (`--long`)."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import itertools
import os
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

from mdsx.base import warn
from mdsx.storage import retry, throttle
from tests import fork_server
from tools.fault_proxy import Proxy
from tools.servers.az import AzureServer
from tools.servers.gs import GoogleServer
from tools.servers.process import Server
from tools.servers.s3 import S3Server

pytest_plugins = ["tests.summary"]
_NUMBERS = itertools.count()

fork_server.preload()

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of the processes that tests start compiles mdsx again
sys.dont_write_bytecode = False
FSYNC = os.fsync
"""For the tests of power cuts. No other test shows whether a file was synced, which takes milliseconds."""
os.fsync = lambda fd: None
os.environ.update(GOGC="400", GOMAXPROCS="1")  # rclone, which is written in Go, takes a quarter less processor time
os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun sets it: more threads of PyTorch only wait for each other, and busily


class Often(Protocol):
    """How often to try a random case: `short` times, or `long` times with `--long`."""

    def __call__(self, short: int, long: int) -> int: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="try what chance decides (kills, faults, fuzzing) far more often"
    )
    parser.addoption("--no-servers", action="store_true", help="skip tests that need a server, which is a program")


def pytest_configure(config: pytest.Config) -> None:
    """Let hypothesis try fewer examples than its 100, except with `--long`, and each for as long as it takes."""
    settings.register_profile("short", max_examples=20, deadline=None)
    settings.register_profile("long", max_examples=1000, deadline=None)
    settings.load_profile("long" if config.getoption("--long") else "short")
    if config.getoption("--no-servers"):
        Server.start = lambda self: pytest.skip("needs a server")  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let test processes collect one after another: on a fresh clone, the first compiles what all of them import.

    What they import stays: to collect garbage meanwhile takes a second.
    """
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the tools: some take a minute, and at the end other test processes would wait for them.

    And with those of PyTorch, which fork most: a fork costs by the size of the process, which grows.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/tools/", "tests/torch/")))


def pytest_collection_finish() -> None:
    """Let garbage collections of tests and of their children pass over modules and tests, which takes 0.2 s each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _a_module_leaves_little_memory() -> Iterator[None]:
    """Let later garbage collections pass over what remains of a module's tests too, and return what they have freed.

    A collection would take 0.4 s by the end of the run, and each fork of this process costs by its pages.
    """
    yield
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True, scope="session")
def _the_users_cache_is_not_touched(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["MDSX_CACHE"] = str(tmp_path_factory.mktemp("default") / "cache")


@pytest.fixture(autouse=True)
def _nothing_was_warned_of_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn, "issued", set())


@pytest.fixture(scope="session")
def often(request: pytest.FixtureRequest) -> Often:
    long_run: bool = request.config.getoption("--long")
    return lambda short, long: long if long_run else short


@pytest.fixture
def counting(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The S3 server through a proxy that counts what it sends; the environment points to it."""
    with Proxy(s3) as proxy:
        for name, value in proxy.env().items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server; the environment points to it."""
    before = dict(os.environ)
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        os.environ.pop("AWS_PROFILE", None)
        os.environ.update(server.env())
        yield server
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session")
def az(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A running server of Azure Blob Storage. The environment does not point to it."""
    with AzureServer(tmp_path_factory.mktemp("az")) as server:
        yield server


@pytest.fixture(scope="session")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """A running server of Google Cloud Storage. The environment does not point to it."""
    with GoogleServer(tmp_path_factory.mktemp("gs")) as server:
        yield server


@pytest.fixture(scope="session")
def _proxy(s3: S3Server) -> Iterator[Proxy]:
    with Proxy(s3) as proxy:
        yield proxy


@pytest.fixture
def proxy(_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the S3 server, without a fault yet. Pauses between tries are short."""
    monkeypatch.setattr(retry, "pause", lambda failures: time.sleep(0.01))
    monkeypatch.setattr(throttle, "pause", lambda seconds: None)
    for name, value in _proxy.env().items():
        monkeypatch.setenv(name, value)
    _proxy.clear()
    yield _proxy
    _proxy.clear()


@pytest.fixture
def s3_url(s3: S3Server) -> str:
    """The URL of a fresh bucket."""
    return s3.make_bucket(f"bucket-{next(_NUMBERS):04d}")


@pytest.fixture
def az_url(az: AzureServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a fresh container. The environment points to its server."""
    for name, value in az.env().items():
        monkeypatch.setenv(name, value)
    return az.make_bucket(f"container-{next(_NUMBERS):04d}")


@pytest.fixture
def gs_url(gs: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a fresh bucket. The environment points to its server."""
    for name, value in gs.env().items():
        monkeypatch.setenv(name, value)
    return gs.make_bucket(f"bucket-{next(_NUMBERS):04d}")
