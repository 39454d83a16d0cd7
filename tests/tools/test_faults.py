"""Loaders under faults: the tool reports what happened, and mdsx keeps its promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Often
from tests.tools import ROOT
from tools.conformance.task import WRONG, checked, text_of
from tools.faults.cases import CASES
from tools.faults.run import Found, Outcome, details, flipped, loaders_in, name_among, place_of, table
from tools.peers import NAMES, peer

BY_NAME = {case.name: case for case in CASES}


def test_a_sample_with_anothers_text_is_wrong() -> None:
    assert checked([1, 2], [text_of(1), text_of(2)]) == [1, 2]
    assert checked([1, 2], [text_of(1), text_of(1)]) == [1, WRONG]


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Outcome(), "exact"),
        (Outcome(wrong=2, lost=5), "2 wrong, 5 lost"),
        (Outcome(lost=959), "959 lost"),
        (Outcome(repeated=3), "3 repeated"),
        (Outcome(lost=100, error="ValueError: bad", named=True), "error"),
        (Outcome(wrong=1, lost=100, error="ValueError: bad"), "1 wrong, error without a place"),
        (Outcome(lost=100, error="made no end in 9 s", hung=True), "hang"),
    ],
)
def test_an_outcome_in_a_word(outcome: Outcome, word: str) -> None:
    assert outcome.word == word


def test_an_incomplete_dataset_that_reads_fine_is_reported() -> None:
    case, half = BY_NAME["writer-error"], Found(Outcome(read=600, lost=360), Outcome())
    assert half.words(case) == ("600 of 960 samples as a whole dataset", "exact")
    none = Found(Outcome(error="MissingError: no dataset", named=True), Outcome())
    assert none.words(case) == ("no dataset", "exact")
    assert none.kept()
    assert not half.kept()


def test_a_broken_promise_is_reported() -> None:
    exact, error = Outcome(), Outcome(lost=9, error="CorruptError: shard.00004", named=True)
    assert Found(exact, exact).kept()
    assert Found(error, exact).kept()
    for first, again in (
        (Outcome(wrong=1), exact),
        (Outcome(lost=1), exact),
        (Outcome(lost=1, error="CorruptError: somewhere"), exact),
        (Outcome(lost=1, error="made no end", hung=True, named=True), exact),
        (exact, error),
    ):
        assert not Found(first, again).kept()


def test_a_flipped_bit_is_restored_at_the_end(tmp_path: Path) -> None:
    texts = b"".join(text_of(number).encode() for number in range(80))
    whole = b"statistics" + b"x" * 8 + b"header" + texts + b"trailer" + b"x" * 8
    (tmp_path / "shard").write_bytes(whole)
    with flipped(tmp_path / "shard"):
        damaged = (tmp_path / "shard").read_bytes()
    assert [place for place in range(len(whole)) if damaged[place] != whole[place]] == [place_of(whole)]
    assert whole.index(b"header") < place_of(whole) < whole.index(b"trailer")
    assert whole[place_of(whole) :].startswith(b"xxxxxxxx")
    assert (tmp_path / "shard").read_bytes() == whole


def test_a_compressed_file_is_damaged_before_its_trailer(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(bytes(1000))
    with flipped(tmp_path / "shard", 800):
        assert (tmp_path / "shard").read_bytes() == bytes(100) + b"\1" + bytes(899)


def test_a_shard_is_named_unlike_all_others() -> None:
    shards = [Path(f"/all/{part}/{name}") for part in ("p0", "p1") for name in ("s0", "s1")]
    assert name_among(shards, shards[2]) == "p1/s0"
    assert name_among(shards[:2], shards[1]) == "s1"


def test_a_fault_meets_only_loaders_that_it_can_meet() -> None:
    levanter = peer("levanter")
    assert {name for name, case in BY_NAME.items() if not case.concerns(levanter)} == {"cached", "worker"}


def test_only_files_of_samples_are_damaged(tmp_path: Path) -> None:
    for name in ("_versions/1.manifest", "_transactions/0.txn", "data/b.lance", "data/a.lance"):
        for kind in ("samples", "texts"):
            path = tmp_path / f"{kind}.lance" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    data = tmp_path / "samples.lance" / "data"
    assert peer("lancedb").shards(tmp_path) == [data / "a.lance", data / "b.lance"]
    for name in ("1.tar", "1.tar.idx", "0.tar", ".nv-meta/split.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert peer("energon").shards(tmp_path) == [tmp_path / "0.tar", tmp_path / "1.tar"]


def test_the_table_has_both_runs_and_the_errors() -> None:
    missing = Found(Outcome(error="MissingError: a|b\nmore", named=True), Outcome())
    found = {"mdsx": {BY_NAME["missing"]: missing}}
    assert "| a shard is not there (404) | error; then exact |" in table(found)
    assert "- a shard is not there (404): `MissingError: a/b`" in details(found)


@pytest.mark.slow
def test_mdsx_keeps_what_it_promises(tmp_path: Path, often: Often) -> None:
    """Real processes and a real S3 server: one case, or all of them with --long."""
    cases = [BY_NAME["transit"], *CASES][: often(1, long=len(CASES) + 1)]
    with loaders_in(tmp_path) as loaders:
        for case in cases:
            found = loaders.run("mdsx", case)
            assert found.kept(), found
            if case.where in ("transit", "cached"):
                assert found.first.word == "exact"


def test_the_documentation_has_every_case_and_loader() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    for case in CASES:
        assert f"| {case.title} | " in page
    for loader in (peer(name) for name in NAMES):
        assert (f"### {loader.title} in faults" in page) == loader.in_faults
