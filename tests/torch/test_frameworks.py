"""Accelerate and Lightning as docs/loaders.md says: real processes, killed and resumed by the frameworks' own means."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests import fork_server

N = 1003
TIMEOUT = 240
PAGE = (Path(__file__).parents[2] / "docs" / "loaders.md").read_text(encoding="utf-8")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def accelerate(url: str, folder: Path, world: int, batch: int, steps: int) -> list[int | None]:
    """Run it and return the ranks' exit statuses."""
    port = free_port()
    ranks = []
    for rank in range(world):
        environment = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_USE_CPU": "true",
        }
        ranks.append(fork_server.start(run_accelerate, url, folder, batch, steps, environment=environment))
    try:
        for process in ranks:
            process.join(TIMEOUT)
        return [process.exitcode for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.join()


def run_accelerate(*arguments: Any) -> None:
    from tests.torch.accelerate_training import train  # takes seconds

    train(*arguments)


def test_accelerate_resumes_on_other_ranks_exactly_once(local_url: str, tmp_path: Path) -> None:
    assert -signal.SIGKILL in accelerate(local_url, tmp_path, world=2, batch=32, steps=5)
    assert accelerate(local_url, tmp_path, world=1, batch=48, steps=4) == [-signal.SIGKILL]
    read = [number for log in tmp_path.glob("*.log") for line in log.open() for number in json.loads(line)]
    assert len(read) == 5 * 2 * 32 + 4 * 48
    assert accelerate(local_url, tmp_path, world=2, batch=20, steps=0) == [0, 0]
    read = [number for log in tmp_path.glob("*.log") for line in log.open() for number in json.loads(line)]
    assert Counter(read) == Counter(range(N))
    assert Counter(json.loads((tmp_path / "valid").read_text())) == Counter(range(N))


def lightning(url: str, folder: Path, devices: int, batch: int, epochs: int, killed_at: int = -1) -> None:
    command = [sys.executable, "-m", "tests.torch.lightning_training", url, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [*command, *map(str, (devices, batch, killed_at, epochs))],
        env=environment,
        timeout=TIMEOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if killed_at < 0 else -signal.SIGKILL), done.stderr


def logged(folder: Path, kind: str = "") -> dict[int, Counter[int]]:
    """Return how often each sample was seen in each epoch."""
    found: dict[int, Counter[int]] = {}
    for log in folder.glob(f"{kind}[0-9].log"):
        for line in log.open():
            epoch, numbers = json.loads(line)
            found.setdefault(epoch, Counter()).update(numbers)
    return found


def test_lightning_resumes_on_other_ranks_exactly_once(local_url: str, tmp_path: Path) -> None:
    lightning(local_url, tmp_path, devices=2, batch=32, epochs=2, killed_at=6)
    assert sum(logged(tmp_path)[0].values()) == 6 * 2 * 32
    lightning(local_url, tmp_path, devices=1, batch=50, epochs=2)
    once = Counter(range(N))
    assert logged(tmp_path) == {0: once, 1: once}
    assert logged(tmp_path, "valid-") == {0: once, 1: once}


def run_lightning(url: str, folder: Path, *runs: tuple[int, int]) -> None:
    """Run trainings one after the other, each with a batch size and a number of epochs."""
    from tests.torch.lightning_training import train  # takes seconds

    for batch, epochs in runs:
        train(url, folder, 1, batch, -1, epochs)


def test_lightning_resumes_a_checkpoint_at_an_epochs_end(local_url: str, tmp_path: Path) -> None:
    """The trainer does not load the loader's state from such a checkpoint: it sets the loader's epoch."""
    fork_server.call(run_lightning, local_url, tmp_path, (50, 1), (30, 2), timeout=TIMEOUT)
    lines = [json.loads(line) for line in (tmp_path / "0.log").open()]
    for epoch, batch_size in enumerate((50, 30)):
        loader = StreamingDataLoader(StreamingDataset(local_url, seed=4), batch_size, drop_last=False)
        loader.set_epoch(epoch)
        expected = [batch["id"].tolist() for batch in loader]
        assert [numbers for number, numbers in lines if number == epoch] == expected


def test_the_page_shows_what_the_lightning_training_uses() -> None:
    training = (Path(__file__).parent / "lightning_training.py").read_text(encoding="utf-8")
    found = re.search(r"^class Recount.*?(?=^class )", training, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert found[0].strip() in PAGE


def test_every_snippet_of_the_page_works(local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 7  # each section has one or two
    code = "import mdsx\nimport torch\nfrom mdsx.torch import StreamingDataLoader, StreamingDataset\n"
    code += f"url = {local_url!r}\n" + "\n".join(snippets)
    (tmp_path / "page.py").write_text(code)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    done: Any = subprocess.run(
        [sys.executable, "page.py"], env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
