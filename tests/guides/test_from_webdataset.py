"""docs/from-webdataset.md: it lists every argument and method, and its programs read the same tars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.foreign.tars import type_of_extension
from tests import fork_server
from tests.guides.from_webdataset import PAGE
from tests.guides.programs import Before, Programs, check_epochs, run_before


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    return run_before("from_webdataset", "webdataset", tmp_path_factory)


@pytest.mark.slow
def test_the_page_lists_every_argument_and_method(before: Before) -> None:
    assert {table: sorted(PAGE.rows(table)) for table in before.tables} == before.tables


def test_the_page_says_which_types_are_inferred() -> None:
    types = {name: kind for name, (kind, *_) in PAGE.rows("Column types").items() if name != "npy"}
    assert types == {name: f"`{type_of_extension(name)}`" for name in types}


@pytest.mark.slow
def test_the_programs_before_and_after_read_the_same_tars(before: Before) -> None:
    assert [len(batch) for batch in before.batches] == [32] * 2 * 30  # each worker drops the end of its tars
    assert {number for batch in before.batches for number in batch} <= set(range(1000))
    found = fork_server.call(run_after, before.directory)
    check_epochs(found["after"])
    assert found["resumed"] == found["after"][31 + 10 :]
    assert found["converted"] == found["written"] == found["in place"]
    assert found["exported"]
    assert found["mixed"] == [32] * (1000 // 32)


def run_after(directory: Path) -> dict[str, Any]:
    """Run the page's programs with mdsx on the tars that webdataset wrote."""
    programs = Programs(PAGE, directory)
    batches: list[list[int]] = []
    found: dict[str, Any] = {}
    programs.shell("After")
    for run in ("after", "resumed"):
        programs.run("After", train=lambda images, labels, pages: batches.append(pages.tolist()))
        found[run], batches[:] = list(batches), []
    programs.shell("Convert the data")
    programs.run("Convert the data")
    for name, url in (("in place", "tars"), ("converted", "corpus"), ("written", "written")):
        found[name] = list(mdsx.Dataset(url))
    found["exported"] = len(list(Path("again").glob("*.tar")))
    found["mixed"] = [len(batch["cls"]) for batch in programs.run("RandomMix and RoundRobin")["loader"]]
    return found
