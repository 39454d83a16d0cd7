"""The session of `tests/engines/spark`, with `format("mdsx")`, for the tests in files `inside_*.py`."""

from __future__ import annotations

from typing import Any

import pytest

from mdsx.engines.spark import register
from tests.engines.spark.conftest import spark as plain_spark

__all__ = ["plain_spark"]


@pytest.fixture(scope="session")
def spark(plain_spark: Any) -> Any:
    register(plain_spark)
    return plain_spark
