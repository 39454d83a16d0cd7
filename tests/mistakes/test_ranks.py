"""Mistakes with several ranks: each one is found before a sample is lost or read twice."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"RANK": "1"}, "RANK is 1, but WORLD_SIZE is not set: a guess would read samples twice; set WORLD_SIZE"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE is 4, but RANK is not set: .*set RANK, or initialise torch.distributed"),
        ({"LOCAL_RANK": "1"}, "LOCAL_RANK is 1, but RANK and WORLD_SIZE are not set: .*give rank= and world_size="),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_WORLD_SIZE is 2, but RANK and WORLD_SIZE are not set"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, r"RANK must be below WORLD_SIZE \(found 4 of 4\)"),
        ({"RANK": "one", "WORLD_SIZE": "4"}, "RANK: the environment variable is not a number"),
    ],
)
def test_a_world_size_that_nobody_has_set(
    url: str, given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(mdsx.UsageError, match=message):
        next(iter(StreamingDataLoader(StreamingDataset(url), 8)))


def test_single_samples_on_several_ranks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `Trainer(train_dataset=StreamingDataset(url))` reads them: it would divide what is divided already."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(mdsx.UsageError, match="StreamingDataLoader"):
        next(iter(StreamingDataset(url)))


RANK = """
import sys, mdsx, torch.distributed
url, port, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
if rank:
    torch.distributed.barrier()
try:
    next(iter(mdsx.Loader(url, 2)))
finally:
    if not rank:
        torch.distributed.barrier()
    torch.distributed.barrier()
"""


def test_two_versions_on_two_ranks(url: str, tmp_path: Path) -> None:
    """The second rank has a copy of mdsx with another version, as from an older image."""
    package = Path(mdsx.__file__).parent
    shutil.copytree(package, tmp_path / "mdsx")
    start = tmp_path / "mdsx" / "__init__.py"
    start.write_text(re.sub('__version__ = ".*"', '__version__ = "0.9.0"', start.read_text()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    found = []
    with ExitStack() as stack:
        for rank, path in enumerate((package.parent, tmp_path)):
            process = subprocess.Popen(
                [sys.executable, "-c", RANK, url, port, str(rank)],
                env={**os.environ, "PYTHONPATH": str(path)},
                cwd=tmp_path.parent,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            found.append(process)
        first, second = (process.communicate(timeout=120)[1] for process in found)
    assert [process.returncode for process in found] == [0, 1], first + second
    assert "UsageError: the ranks run different versions of mdsx" in second
    assert f"(expected {mdsx.__version__}, as the first rank has, found 0.9.0)" in second
    assert f"install the same version on all ranks, for example with `pip install mdsx=={mdsx.__version__}`" in second
