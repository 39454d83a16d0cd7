"""`mdsx repair`: its output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import mdsx
from tests.cli.conftest import Run
from tests.cli.test_verify import flip


def test_an_undamaged_dataset_is_status_0(run: Run, dataset: Path) -> None:
    status, out, err = run("repair", dataset)
    assert (status, err) == (0, "")
    assert out.startswith("undamaged: 300 samples in ")
    assert out.endswith("nothing to repair\n")


def test_losses_are_listed_and_nothing_changes(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00001.mdsx", -1)
    (dataset / "shard.00002.mdsx").unlink()
    counts = [shard["samples"] for shard in json.loads(run("repair", dataset, "--json").out)["damaged"]]
    before = sorted(dataset.iterdir())
    status, out, err = run("repair", dataset)
    assert status == 1
    assert sorted(dataset.iterdir()) == before
    first, lost, second, all_of_it, last = out.splitlines()
    assert first.startswith(f"damaged: {dataset}/shard.00001.mdsx: sample {counts[0] - 1} (")
    assert lost.startswith(f"  lost: 1 of {counts[0]} samples: {counts[0] - 1} (")
    assert second.startswith(f"damaged: {dataset}/shard.00002.mdsx: the shard is not there")
    assert all_of_it.startswith(f"  lost: {counts[1]} of {counts[1]} samples: 0-{counts[1] - 1} (")
    assert last.startswith(f"nothing was changed: a repair would leave {300 - 1 - counts[1]} samples in ")
    assert "--drop-damaged" in err


def test_it_drops_lost_samples_on_request(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00001.mdsx", -1)
    status, out, err = run("repair", dataset, "--drop-damaged")
    assert (status, err) == (0, "")
    assert f"  replaced by {dataset}/repaired.shard.00001.mdsx\n" in out
    assert "\nrepaired: 299 samples in " in out
    assert f"the previous index: {dataset}/index.before-repair-" in out
    assert "states of running jobs no longer load" in out
    assert run("verify", dataset).status == 0
    assert run("repair", dataset).out.startswith("undamaged: 299 samples")


def test_a_dry_run_changes_nothing(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00001.mdsx", 20)
    before = sorted(dataset.iterdir())
    status, out, err = run("repair", dataset, "--dry-run", "--drop-damaged")
    assert status == 1
    assert "  lost: no sample" in out
    assert "without --dry-run" in err
    assert sorted(dataset.iterdir()) == before


def test_a_dry_run_asks_for_no_given_option(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00001.mdsx", -1)
    status, _, err = run("repair", dataset, "--dry-run", "--drop-damaged")
    assert status == 1
    assert "without --dry-run" in err
    assert "give --drop-damaged" not in err


def test_lossless_repairs_are_made_immediately(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00001.mdsx", 20)
    status, out, err = run("repair", dataset)
    assert (status, err) == (0, "")
    assert "no sample is lost" in out
    assert "states of running jobs" not in out


def test_a_missing_index_is_rebuilt(run: Run, dataset: Path) -> None:
    index = dataset / "index.json"
    before = index.read_bytes()
    flip(index, 20)
    assert "the original, byte for byte" in run("repair", dataset).out
    assert index.read_bytes() == before
    index.unlink()
    assert "index.json: not found" in run("repair", dataset).out
    assert index.read_bytes() == before


def test_json_contains_the_whole_report(run: Run, dataset: Path) -> None:
    flip(dataset / "shard.00001.mdsx", -1)
    status, out, _ = run("repair", dataset, "--json")
    output = json.loads(out)
    assert (status, output["needed"], output["written"], output["lost_samples"]) == (1, True, False, 1)
    (damaged,) = output["damaged"]
    start = damaged["samples"] - 1
    assert (damaged["lost"], damaged["replacement"]) == ([[start, start + 1]], None)
    assert damaged["problems"][0]["place"] == f"sample {start} ({damaged['first'] + start} of the dataset)"
    output = json.loads(run("repair", dataset, "--drop-damaged", "--json").out)
    assert (output["written"], output["samples"]) == (True, 299)
    assert output["fingerprint"] != output["fingerprint_before"]
    assert len(mdsx.Dataset(dataset)) == 299
    assert json.loads(run("repair", dataset, "--json").out)["needed"] is False
