"""`mdsx merge` joins parts."""

from __future__ import annotations

import json
from pathlib import Path

import mdsx
from tests.cli.conftest import Run


def write_parts(folder: Path, count: int) -> None:
    for part in range(count):
        with mdsx.Writer(folder / f"part-{part:05d}", {"number": "int64"}) as out:
            out.write({"number": part})


def test_merge_joins_parts_in_their_order(run: Run, tmp_path: Path) -> None:
    write_parts(tmp_path, 3)
    status, out, _ = run("merge", tmp_path, "--json")
    assert status == 0
    assert json.loads(out) == {"url": str(tmp_path), "samples": 3, "shards": 3}
    assert [sample["number"] for sample in mdsx.Dataset(tmp_path)] == [0, 1, 2]


def test_a_missing_part_is_named(run: Run, tmp_path: Path) -> None:
    write_parts(tmp_path, 2)
    status, _, err = run("merge", tmp_path, "--parts", 3)
    assert status == 1
    assert "part-00002" in err


def test_an_index_is_replaced_only_on_request(run: Run, tmp_path: Path) -> None:
    write_parts(tmp_path, 2)
    assert run("merge", tmp_path).out == f"merged into {tmp_path}: 2 samples in 2 shards\n"
    assert run("merge", tmp_path).status == 1
    assert run("merge", tmp_path, "--overwrite").status == 0


def test_parts_with_metadata_of_their_own_need_that_of_the_whole(run: Run, tmp_path: Path) -> None:
    for part in range(2):
        with mdsx.Writer(tmp_path / f"part-{part:05d}", {"number": "int64"}, metadata={"part": part}) as out:
            out.write({"number": part})
    status, _, err = run("merge", tmp_path)
    assert status == 1
    assert "metadata" in err
    for wrong in ("[1]", "{", "[" * 10**5, '{"a":' * 10**5):
        status, _, err = run("merge", tmp_path, "--metadata", wrong)
        assert (status, "--metadata must be a JSON object" in err) == (1, True)
    assert run("merge", tmp_path, "--metadata", '{"parts": "all"}').status == 0
    assert mdsx.Dataset(tmp_path).metadata == {"parts": "all"}
