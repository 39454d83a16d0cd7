"""The dataset of the examples."""

from __future__ import annotations

import runpy

import pytest

from tests.examples.runs import EXAMPLES


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("examples") / "data")
    runpy.run_path(str(EXAMPLES / "data.py"))["write"](url)
    return url
