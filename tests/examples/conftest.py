"""The dataset of the examples, and the process that runs them."""

from __future__ import annotations

import runpy
from collections.abc import Iterator

import pytest

from tests.examples.runs import EXAMPLES, Programs, write_corpus
from tools.environment import PeerEnvironment


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("examples") / "data")
    runpy.run_path(str(EXAMPLES / "data.py"))["write"](url)
    return url


@pytest.fixture(scope="session")
def corpus(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("examples") / "corpus")
    programs.call(write_corpus, url)
    return url


@pytest.fixture(scope="session")
def frameworks() -> None:
    PeerEnvironment("frameworks").install()


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    found = Programs()
    yield found
    found.close()
