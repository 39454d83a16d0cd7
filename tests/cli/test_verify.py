"""`mdsx verify`: a line per damage, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_sound_dataset_is_status_0(run: Run, dataset: Path) -> None:
    status, out, err = run("verify", dataset)
    assert (status, err) == (0, "")
    assert out.startswith("sound: 300 samples in ")


def test_a_line_for_each_damage_and_status_1(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00000.mdsx", -1)
    (dataset / "shard.00002.mdsx").unlink()
    status, out, err = run("verify", dataset)
    assert (status, err) == (1, "")
    first, second, last = out.splitlines()
    assert first.startswith(f"damaged: {dataset}/shard.00000.mdsx: sample ")
    assert second.startswith(f"damaged: {dataset}/shard.00002.mdsx: ")
    assert last.startswith("2 damages found in 300 samples")


def test_json_lists_the_damages(run: Run, dataset: Path) -> None:
    told = json.loads(run("verify", dataset, "--json").out)
    assert (told["sound"], told["samples"], told["damages"]) == (True, 300, [])
    flip(dataset / "shard.00001.mdsx", -1)
    status, out, _ = run("verify", dataset, "--json", "--threads", 1)
    told = json.loads(out)
    assert (status, told["sound"]) == (1, False)
    (damage,) = told["damages"]
    assert damage["file"] == f"{dataset}/shard.00001.mdsx"
    assert damage["kind"] == "CorruptError"
    assert damage["place"].startswith("sample ")
