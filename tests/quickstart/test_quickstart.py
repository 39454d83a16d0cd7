"""`mdsx quickstart`: a training that is really killed and resumed, with PyTorch and without it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

import mdsx
from mdsx.quickstart import Life, Step, account_of, write_documents


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("quickstart") / "documents")
    count, size = write_documents(url, 300)
    assert count == len(mdsx.Dataset(url)) == 300
    assert size > 300_000
    return url


@pytest.mark.slow_if("torch")
@pytest.mark.parametrize("torch", [False, True])
def test_a_killed_training_resumes_and_learns(
    documents: str, tmp_path: Path, torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Life, "torch", property(lambda self: torch))
    with closing(Life(documents, tmp_path, 10, 0).steps()) as steps:
        killed = list(islice(steps, 8))
    resumed = list(Life(documents, tmp_path, 25, 2).steps())
    found = account_of(300, killed, resumed)
    assert (found.lost, found.repeated) == (0, 0)
    assert found.lives.count((1,)) == 50  # five steps of ten: the three after the checkpoint are done again
    assert resumed[0].step == 6
    assert resumed[-1].loss < 0.75 * killed[0].loss


def test_lost_and_repeated_samples_are_counted() -> None:
    killed = [Step(step, 1.0, (step,)) for step in range(1, 8)]
    found = account_of(10, killed, [Step(6, 1.0, (5, 6, 7, 8))])
    assert found.lost == 2
    assert found.repeated == 1
    assert found.lives == ((), (1,), (1,), (1,), (1,), (1, 2), (2,), (2,), (2,), ())


def test_a_training_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(mdsx.MdsxError, match=r"(?s)the training ended with status 1.*no dataset is here"):
        list(Life(str(tmp_path / "none"), tmp_path, 10, 0).steps())


@pytest.mark.slow
def test_the_command_shows_that_nothing_was_lost(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "mdsx", "quickstart", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    shown = run("--keep", "documents")
    assert "Every sample was read exactly once." in shown
    assert "lost 0, repeated 0" in shown
    there, _ = write_documents(str(tmp_path / "more"), 1201)  # Debian's Python has fewer source files
    assert len(mdsx.Dataset(tmp_path / "documents")) == min(there, 1200)
    found = json.loads(run("--json"))
    assert found["exact"] is True
    assert found["last_loss"] < found["first_loss"]


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mdsx", "quickstart", "--json", "--html", "/dev/full"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the page cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
