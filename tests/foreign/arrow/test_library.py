"""pyarrow is an extra."""

from __future__ import annotations

import sys

import pytest

from mdsx.errors import UsageError
from mdsx.foreign.arrow.library import pa


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'mdsx\[parquet\]'"):
        _ = type(pa)().table
