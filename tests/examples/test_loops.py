"""Every program in examples/ that trains in a loop people use: killed, and resumed on other ranks, it loses nothing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.examples.runs import EXAMPLES, Programs, Start, Trained, killed

PAGE = (EXAMPLES.parent / "docs" / "trainers.md").read_text(encoding="utf-8")
SAMPLES = 1003
EPOCHS = 2


def check(trained: Trained, epochs: int = EPOCHS) -> None:
    """Check that each start but the last one was killed, and each sample came once in each epoch."""
    *first, last = trained.statuses
    assert all(map(killed, first))
    assert set(last) == {0}
    assert trained.epochs == [Counter(range(SAMPLES))] * epochs


@pytest.mark.slow
def test_accelerate_resumes_on_other_ranks_exactly_once(programs: Programs, data: str, tmp_path: Path) -> None:
    trained = programs.run("accelerate_loop.py", data, tmp_path / "run", [Start(2, killed_in=18), Start(3)])
    check(trained)
    assert "the mean of 1,003 samples" in trained.printed


@pytest.mark.slow
def test_lightning_resumes_on_other_ranks_exactly_once(programs: Programs, data: str, tmp_path: Path) -> None:
    check(programs.run("lightning_trainer.py", data, tmp_path / "run", [Start(2, killed_in=18), Start(1)]))


@pytest.mark.slow
def test_a_distributed_checkpoint_resumes_on_other_ranks_exactly_once(
    programs: Programs, data: str, tmp_path: Path
) -> None:
    starts = [Start(2, killed_in=18), Start(1)]
    check(programs.run("distributed_checkpoint.py", data, tmp_path / "run", starts))


def test_the_page_shows_the_code_of_the_examples() -> None:
    programs = "\n".join(path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py"))
    loops = PAGE.partition("## Training loops")[2]
    snippets = re.findall(r"^```python\n(.*?)^```$", loops, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 13
    assert not [code for code in snippets if code not in programs]


def test_a_page_names_every_example() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (EXAMPLES.parent / "docs").glob("*.md"))
    unnamed = {path.name for path in EXAMPLES.glob("*.py") if f"examples/{path.name}" not in pages}
    assert not unnamed
