"""docs/trainers.md: its snippet runs; and Lightning at an epoch's end. tests/examples/ runs the other loops."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests import fork_server

N = 1003
TIMEOUT = 240
PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text(encoding="utf-8")


def lightning(url: str, folder: Path, *jobs: tuple[int, int]) -> None:
    """Run trainings one after the other, each with a batch size, until a number of epochs is done."""
    from tests.torch.lightning_training import train  # takes seconds

    for job in jobs:
        train(url, folder, *job)


def logged(folder: Path, kind: str = "") -> dict[int, Counter[int]]:
    """Return how often each sample was seen in each epoch."""
    found: dict[int, Counter[int]] = {}
    for log in folder.glob(f"{kind}[0-9].log"):
        for line in log.open():
            epoch, numbers = json.loads(line)
            found.setdefault(epoch, Counter()).update(numbers)
    return found


@pytest.mark.slow
def test_lightning_resumes_a_checkpoint_at_an_epochs_end(local_url: str, tmp_path: Path) -> None:
    """The trainer does not load the loader's state from such a checkpoint: it sets the loader's epoch."""
    fork_server.call(lightning, local_url, tmp_path, (50, 1), (30, 2), timeout=TIMEOUT)
    lines = [json.loads(line) for line in (tmp_path / "0.log").open()]
    for epoch, batch_size in enumerate((50, 30)):
        loader = StreamingDataLoader(StreamingDataset(local_url, seed=4), batch_size, drop_last=False)
        loader.set_epoch(epoch)
        expected = [batch["id"].tolist() for batch in loader]
        assert [numbers for number, numbers in lines if number == epoch] == expected
    once = Counter(range(N))
    assert logged(tmp_path, "valid-") == {0: once, 1: once}


def run_page(folder: Path) -> None:
    os.chdir(folder)
    multiprocessing.set_start_method(None, force=True)  # the default, which is not the fork server
    runpy.run_path(str(folder / "page.py"), run_name="__main__")


def test_the_evaluation_of_the_page_works(local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.partition("## Training loops")[0]  # those after it are parts of programs in examples/
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 1
    code = "import mdsx\nimport torch\nfrom mdsx.torch import StreamingDataLoader, StreamingDataset\n"
    code += f"url = {local_url!r}\n" + "\n".join(snippets)
    (tmp_path / "page.py").write_text(code)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    fork_server.call(run_page, tmp_path, timeout=TIMEOUT)
