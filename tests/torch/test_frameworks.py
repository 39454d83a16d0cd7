"""Accelerate and Lightning as docs/loaders.md says: real processes, killed and resumed by the frameworks' own means."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import re
import runpy
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterable
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


def run_ranks(
    train: Callable[..., None], arguments: tuple[Any, ...], *environments: dict[str, str]
) -> list[int | None]:
    """Run a rank of a training in each environment and return their exit statuses."""
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=run_rank, args=(each, train, arguments)) for each in environments]
    try:
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(TIMEOUT)
        return [process.exitcode for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.join()


def run_rank(environment: dict[str, str], train: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment, MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    train(*arguments)


def samples_in(logs: Iterable[Path]) -> list[int]:
    return [number for log in logs for line in log.open() for number in json.loads(line)]


def accelerate(url: str, folder: Path, jobs: list[tuple[int, int, int]]) -> list[tuple[list[int | None], int]]:
    """Run jobs of ranks, a batch size and steps. Return each one's exit statuses and the samples logged until then."""
    importlib.import_module("torch._dynamo")  # optimizers need it, and it takes seconds: once, for all ranks
    from tests.torch.accelerate_training import train

    found = []
    for world, batch, steps in jobs:
        shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_PORT": str(free_port())}
        shared["ACCELERATE_USE_CPU"] = "true"
        ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
        statuses = run_ranks(train, (url, folder, batch, steps), *ranks)
        found.append((statuses, len(samples_in(folder.glob("*.log")))))
    return found


def test_accelerate_resumes_on_other_ranks_exactly_once(local_url: str, tmp_path: Path) -> None:
    jobs = [(2, 32, 5), (1, 48, 4), (2, 20, 0)]
    first, second, last = fork_server.call(accelerate, local_url, tmp_path, jobs, timeout=TIMEOUT)
    assert -signal.SIGKILL in first[0]
    assert second == ([-signal.SIGKILL], 5 * 2 * 32 + 4 * 48)
    assert last == ([0, 0], N)
    assert Counter(samples_in(tmp_path.glob("*.log"))) == Counter(range(N))
    assert Counter(json.loads((tmp_path / "valid").read_text())) == Counter(range(N))


def lightning(url: str, folder: Path, *jobs: tuple[int, int, int, int]) -> list[tuple[list[int | None], int]]:
    """Run jobs of ranks, a batch size, a step to be killed at (-1: none) and epochs. Return the same as `accelerate`,
    of the first epoch."""
    from tests.torch.lightning_training import train  # takes seconds: once, for all ranks

    found = []
    for world, *job in jobs:
        port = str(free_port())
        ranks = [{"LOCAL_RANK": str(rank), "NODE_RANK": "0", "MASTER_PORT": port} for rank in range(world)]
        statuses = run_ranks(train, (url, folder, world, *job), *ranks)
        found.append((statuses, sum(logged(folder)[0].values())))
    return found


def logged(folder: Path, kind: str = "") -> dict[int, Counter[int]]:
    """Return how often each sample was seen in each epoch."""
    found: dict[int, Counter[int]] = {}
    for log in folder.glob(f"{kind}[0-9].log"):
        for line in log.open():
            epoch, numbers = json.loads(line)
            found.setdefault(epoch, Counter()).update(numbers)
    return found


def test_lightning_resumes_on_other_ranks_exactly_once(local_url: str, tmp_path: Path) -> None:
    jobs = [(2, 32, 6, 2), (1, 50, -1, 2)]
    killed, resumed = fork_server.call(lightning, local_url, tmp_path, *jobs, timeout=TIMEOUT)
    assert killed == ([-signal.SIGKILL] * 2, 6 * 2 * 32)
    assert resumed == ([0], N)
    once = Counter(range(N))
    assert logged(tmp_path) == {0: once, 1: once}
    assert logged(tmp_path, "valid-") == {0: once, 1: once}


def test_lightning_resumes_a_checkpoint_at_an_epochs_end(local_url: str, tmp_path: Path) -> None:
    """The trainer does not load the loader's state from such a checkpoint: it sets the loader's epoch."""
    jobs = [(1, 50, -1, 1), (1, 30, -1, 2)]
    assert fork_server.call(lightning, local_url, tmp_path, *jobs, timeout=TIMEOUT) == [([0], N)] * 2
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


def run_page(folder: Path) -> None:
    os.chdir(folder)
    multiprocessing.set_start_method(None, force=True)  # the default, which is not the fork server
    runpy.run_path(str(folder / "page.py"), run_name="__main__")


def test_every_snippet_of_the_page_works(local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 7  # each section has one or two
    code = "import mdsx\nimport torch\nfrom mdsx.torch import StreamingDataLoader, StreamingDataset\n"
    code += f"url = {local_url!r}\n" + "\n".join(snippets)
    (tmp_path / "page.py").write_text(code)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    fork_server.call(run_page, tmp_path, timeout=TIMEOUT)
