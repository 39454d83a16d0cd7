"""The Spark that the tests in files `inside_*.py` use. They run in an environment of Spark: see `runs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.spark.runs import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = open_session()
    yield session
    session.stop()
