"""Conversions of the same sources: in one process, in two, and stopped and continued."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import mdsx


def assert_same_bytes(kind: Any, sources: str, folder: Path, *, stop_after: int) -> Path:
    """Convert `sources` three times, and return one of the datasets. One is stopped after some samples."""

    class Stop(Exception):
        pass

    def stop(progress: mdsx.Progress) -> None:
        if progress.samples > stop_after:
            raise Stop

    mdsx.convert(kind, sources, folder / "one", shard_size="16KB")
    mdsx.convert(kind, sources, folder / "two", shard_size="16KB", num_workers=2)
    with pytest.raises(Stop):
        mdsx.convert(kind, sources, folder / "again", shard_size="16KB", watch=stop)
    assert not (folder / "again" / "index.json").exists()
    mdsx.convert(kind, sources, folder / "again", shard_size="16KB")
    assert files(folder / "one") == files(folder / "two") == files(folder / "again")
    return folder / "one"


def files(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
