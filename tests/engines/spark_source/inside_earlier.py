"""`register` with a session of Spark 3.5, which has no data sources in Python."""

from __future__ import annotations

from typing import Any

import pytest

import mdsx
from mdsx.engines.spark import register


def test_the_error_names_the_version_and_the_way_out(plain_spark: Any) -> None:
    expected = r"needs Spark 4 or later.*found Spark 3\.5\.\d+.*write with mdsx\.engines\.spark\.write"
    with pytest.raises(mdsx.UsageError, match=expected):
        register(plain_spark)
