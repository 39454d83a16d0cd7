"""`read` returns each sample of each kind of dataset once, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from tests.engines.ray.scenarios import ROWS, result, start
from tests.foreign.mds.plain import write_dataset
from tests.foreign.tars.tars import write_tar

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

QUARTERS = [range(first, first + ROWS // 4) for first in range(0, ROWS, ROWS // 4)]


@pytest.fixture(scope="module")
def found(ray_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("reads")
    with mdsx.Writer(folder / "mdsx", {"id": "int64", "text": "str"}, shard_size=1000) as out:
        for number in range(ROWS):
            out.write({"id": number, "text": "x" * (number % 50)})
    write_dataset(folder / "mds", {"id": "int"}, [[{"id": number} for number in quarter] for quarter in QUARTERS])
    (folder / "parquet").mkdir()
    for place, quarter in enumerate(QUARTERS):
        pq.write_table(pa.table({"id": list(quarter)}), folder / "parquet" / f"{place}.parquet", row_group_size=60)
        members = [(f"{number:05}.id", str(number).encode()) for number in quarter]
        write_tar(folder / "tars" / f"{place}.tar", members)
    mdsx.index_parquet(folder / "parquet")
    mdsx.index_tars(str(folder / "tars" / "{0..3}.tar"), index=folder / "tars")
    return result(start(ray_python, "reads", folder))


@pytest.mark.parametrize("name", ["mdsx", "mds", "parquet", "tars", "many tasks"])
def test_each_sample_is_read_once_in_order(found: Any, name: str) -> None:
    assert found[name] == list(range(ROWS))


def test_selections_are_read_as_they_are(found: Any) -> None:
    assert found["every 7th"] == list(range(0, ROWS, 7))
    assert found["none"] == []
    assert found["limit"] == list(range(10))
