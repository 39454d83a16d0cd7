"""docs/from-litdata.md: it lists every argument and function, and its programs read the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mdsx
from tests import fork_server
from tests.guides.from_litdata import PAGE
from tests.guides.programs import Before, Programs, check_epochs, run_before

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    return run_before("from_litdata", "litdata", tmp_path_factory)


def test_the_page_lists_every_argument_and_function(before: Before) -> None:
    assert {table: sorted(PAGE.rows(table)) for table in before.tables} == before.tables


def test_the_programs_before_and_after_read_the_same_samples(before: Before) -> None:
    check_epochs(before.batches)
    found = fork_server.call(run_after, before.directory)
    check_epochs(found["after"])
    assert found["resumed"] == found["after"][31 + 10 :]
    assert sorted(found["converted"]) == found["built"] == list(range(1000))
    assert found["mixed"] == [32] * (1000 // 32)
    assert found["switched"] == (1, 31 - 10)


def run_after(directory: Path) -> dict[str, Any]:
    """Run the page's programs with mdsx, next to the chunks that LitData wrote and what was converted from them."""
    programs = Programs(PAGE, directory)
    batches: list[list[int]] = []
    found: dict[str, Any] = {}
    programs.run("After", 0)
    for run in ("after", "resumed"):
        session = programs.run("After", 1, train=lambda tokens, sources: batches.append(tokens[:, 0].tolist()))
        found[run], batches[:] = list(batches), []
    for name, url in (("converted", "converted"), ("built", "corpus")):
        found[name] = [sample["page"] for sample in mdsx.Dataset(url) if (sample["tokens"] == sample["page"]).all()]
    session = programs.run("CombinedStreamingDataset", **session)
    found["mixed"] = [len(batch["page"]) for batch in session["loader"]]
    session = programs.run("ParallelStreamingDataset", **session)
    loader = programs.run("Switch in the middle of a run", **session)["loader"]
    found["switched"] = (loader.epoch, loader.remaining)
    return found
