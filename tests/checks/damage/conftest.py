"""What the tests of this package share: a cache of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is not the user's, and outside the datasets that are compared file by file."""
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path_factory.mktemp("cache")))
