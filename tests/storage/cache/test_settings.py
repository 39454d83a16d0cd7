"""`mdsx.Cache`: the user's settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import mdsx


def test_the_limit_applies(tmp_path: Path) -> None:
    assert mdsx.Cache(tmp_path / "cache", limit="5kB").open().limit == 5000


def test_what_a_shard_is_checked_for_is_chosen() -> None:
    assert mdsx.Cache(verify="size").verify == "size"
    with pytest.raises(mdsx.UsageError, match='verify must be "full" or "size"'):
        mdsx.Cache(verify="SIZE")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["200GB", 5000])
def test_a_size_is_no_directory(given: Any) -> None:
    with pytest.raises(mdsx.UsageError, match="looks like a size") as raised:
        mdsx.Cache(given)
    assert f"mdsx.Cache(limit={given!r})" in str(raised.value)


def test_the_same_settings_may_be_written_in_several_ways(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    some = mdsx.Cache(tmp_path / "cache", limit="2kB")
    assert some.same_as(mdsx.Cache(os.fspath(tmp_path / "link"), limit=2000))
    for other in (
        mdsx.Cache(tmp_path / "cache", limit=2001),
        mdsx.Cache(tmp_path / "cache"),
        mdsx.Cache(tmp_path / "other", limit=2000),
        mdsx.Cache(tmp_path / "cache", limit=2000, verify="size"),
    ):
        assert not some.same_as(other)
