"""docs/from-hf-datasets.md: it lists every argument and method, and its programs read the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mdsx
from tests import fork_server
from tests.guides.from_hf_datasets import COMMON, PAGE
from tests.guides.programs import Before, Programs, check_epochs, run_before

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    return run_before("from_hf_datasets", "huggingface", tmp_path_factory)


def test_the_page_lists_every_method(before: Before) -> None:
    assert sorted(PAGE.rows("Methods")) == before.tables["Methods"]


def test_the_page_lists_every_argument(before: Before) -> None:
    common, used = set(PAGE.rows(COMMON)), set()
    for table, arguments in before.tables.items():
        if table != "Methods":
            listed, missing = set(PAGE.rows(table)), set(arguments) - PAGE.rows(table).keys()
            assert listed <= set(arguments), table
            assert missing <= common, table
            used |= missing
    assert used == common


def test_the_programs_before_and_after_read_the_same_files(before: Before) -> None:
    assert {len(batch) for batch in before.batches} == {32}
    assert {number for batch in before.batches for number in batch} <= set(range(1000))
    found = fork_server.call(run_after, before.directory)
    check_epochs(found["after"])
    assert found["resumed"] == found["after"][31 + 10 :]
    assert found["converted"] == found["in place"] == [([n] * 8, "wiki", n) for n in range(1000)]
    assert found["mixed"] == [32] * (1000 // 32)


def run_after(directory: Path) -> dict[str, Any]:
    """Run the page's programs with mdsx on the files that Hugging Face's datasets wrote."""
    programs = Programs(PAGE, directory)
    batches: list[list[int]] = []
    found: dict[str, Any] = {}
    programs.shell("After")
    for run in ("after", "resumed"):
        session = programs.run("After", train=lambda tokens, sources: batches.append(tokens[:, 0].tolist()))
        found[run], batches[:] = list(batches), []
    programs.shell("Convert the data")
    for name, url in (("in place", "files"), ("converted", "corpus")):
        found[name] = [(each["tokens"].tolist(), each["source"], each["page"]) for each in mdsx.Dataset(url)]
    session = programs.run("interleave_datasets and concatenate_datasets", **session)
    found["mixed"] = [len(batch["source"]) for batch in session["loader"]]
    return found
