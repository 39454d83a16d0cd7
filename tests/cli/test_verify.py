"""`mdsx verify`: a line per damage, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tools.servers.http import HttpServer


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_an_undamaged_dataset_is_status_0(run: Run, dataset: Path) -> None:
    status, out, err = run("verify", dataset)
    assert (status, err) == (0, "")
    assert out.startswith("undamaged: 300 samples in ")


def test_a_line_for_each_damage_and_status_1(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00000.mdsx", -1)
    (dataset / "shard.00002.mdsx").unlink()
    status, out, err = run("verify", dataset)
    assert status == 1
    assert f"mdsx repair {dataset}" in err  # the way out
    first, second, last = out.splitlines()
    assert first.startswith(f"damaged: {dataset}/shard.00000.mdsx: sample ")
    assert second.startswith(f"damaged: {dataset}/shard.00002.mdsx: ")
    assert last.startswith("2 problems in 2 files, found in 300 samples")


def test_json_lists_the_damages(run: Run, dataset: Path) -> None:
    output = json.loads(run("verify", dataset, "--json").out)
    assert (output["undamaged"], output["samples"], output["damages"]) == (True, 300, [])
    flip(dataset / "shard.00001.mdsx", -1)
    status, out, _ = run("verify", dataset, "--json", "--num-threads", 1)
    output = json.loads(out)
    assert (status, output["undamaged"]) == (1, False)
    (damage,) = output["damages"]
    assert damage["file"] == f"{dataset}/shard.00001.mdsx"
    assert damage["kind"] == "CorruptError"
    assert damage["place"].startswith("sample ")


def test_much_damage_lists_every_file_in_few_lines(run: Run, dataset: Path) -> None:
    shards = sorted(dataset.glob("shard.*"))
    for path in shards:
        data = bytearray(path.read_bytes())
        data[320::7] = bytes(byte ^ 1 for byte in data[320::7])
        path.write_bytes(data)
    status, out, _ = run("verify", dataset)
    *lines, last = out.splitlines()
    assert status == 1
    assert len(lines) <= 11 * len(shards)
    assert all(any(line.startswith(f"damaged: {path}: sample ") for line in lines) for path in shards)
    assert sum(line.endswith("and more; see --json") for line in lines) == len(shards)
    output = json.loads(run("verify", dataset, "--json").out)
    assert output["damaged_files"] == len(shards)
    assert output["damages_found"] == len(output["damages"]) > 11 * len(shards)
    assert last.startswith(f"{output['damages_found']:,} problems in")


def test_files_missing_from_the_index_are_listed(run: Run, dataset: Path) -> None:
    (dataset / "shard.00099.mdsx").write_bytes(b"")
    status, out, _ = run("verify", dataset)
    assert status == 0
    assert out.splitlines()[0] == "not in the index: 1 file: shard.00099.mdsx"
    assert json.loads(run("verify", dataset, "--json").out)["unnamed"] == ["shard.00099.mdsx"]


def test_a_dataset_on_a_web_server_is_verified(run: Run, dataset: Path) -> None:
    with HttpServer(dataset.parent) as server:  # which cannot list what is beside the shards
        status, out, err = run("verify", server.url(dataset.name))
    assert (status, err) == (0, "")
    assert out.startswith("undamaged: 300 samples in ")
