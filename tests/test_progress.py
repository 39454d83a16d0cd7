"""Progress: verify, repair and convert_tars report it in the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import mdsx
from tests.convert.tars import sample_members, write_tar

CALLS: dict[str, Callable[[Path, Callable[[mdsx.Progress], object]], object]] = {
    "verify": lambda folder, watch: mdsx.verify(folder / "data", watch=watch),
    "repair": lambda folder, watch: mdsx.repair(folder / "data", watch=watch),
    "convert_tars": lambda folder, watch: mdsx.convert_tars(f"{folder}/x.tar", folder / "again", watch=watch),
}


@pytest.mark.parametrize("call", CALLS)
def test_progress_grows_until_everything_is_read(call: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", sample_members(range(50)))
    mdsx.convert_tars([f"{tmp_path}/x.tar"], tmp_path / "data", shard_size="1KB")
    seen: list[mdsx.Progress] = []
    CALLS[call](tmp_path, seen.append)
    assert [progress.size for progress in seen] == sorted(progress.size for progress in seen)
    assert {progress.of_size for progress in seen} == {seen[-1].size}
    assert seen[-1].samples == 50
    assert seen[-1].shards == seen[-1].of_shards
    assert not any(progress.problems for progress in seen)
