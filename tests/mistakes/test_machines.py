"""Mistakes with a machine: full disks, a home that cannot be written, limits, notebooks, workers and CUDA."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests import fork_server

LARGE = 50_000  # bytes of a sample; no shard of them fits below the limits here


def read(url: str, cache: mdsx.Cache | None, changes: dict[str, str], *, descriptors: int = 0, **options: Any) -> str:
    """Read a dataset in a process with such an environment and limit. Return what a newcomer gets."""
    os.environ.update(changes)
    if descriptors:
        most = len(os.listdir("/proc/self/fd")) + descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            batches = [*StreamingDataLoader(StreamingDataset(url, cache=cache), 50, **options)]
        except mdsx.MdsxError as error:
            return f"{type(error).__name__}: {error}"
    return "\n".join([f"{len(batches)} batches", *(str(each.message) for each in warned)])


def limited(work: Any, size: int, *arguments: Any) -> Any:
    """Call `work` where no file may be larger than `size` bytes, which a quota says like a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return work(*arguments)


def write(root: str) -> str:
    try:
        with mdsx.Writer(root, {"x": "bytes"}, shard_size=4 * LARGE) as out:
            for _ in range(100):
                out.write({"x": bytes(LARGE)})
    except mdsx.MdsxError as error:
        return f"{type(error).__name__}: {error}"
    return "written"


# --- disks


def test_a_quota_on_the_disk_that_is_written(tmp_path: Path) -> None:
    found = fork_server.call(limited, write, LARGE, str(tmp_path / "data"))
    assert found.startswith(f"TransportError: {tmp_path}/data/shard.0000")
    assert (
        ".mdsx: the disk failed: File too large; raise the limit on file sizes (`ulimit -f unlimited`), and resume"
        in found
    )
    with pytest.raises(mdsx.MissingError, match=r"there is an unfinished dataset: .*resume=True"):
        mdsx.Dataset(tmp_path / "data")


def test_a_full_disk_that_is_written(tmp_path: Path) -> None:
    """A real full disk of 1 MB, in a namespace of its own. Without namespaces, the quota above replaces it."""
    program = f"from tests.mistakes.test_machines import write; print(write({str(tmp_path / 'data')!r}))"
    mounted = f'mount -t tmpfs -o size=1m none {tmp_path} && exec "$0" -c "$1"'
    command = ["unshare", "-Urm", "sh", "-c", mounted, sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no small disk can be made here: {done.stderr}")
    assert (
        "the disk failed: No space left on device; free some space (`df -h` shows the disks), and resume" in done.stdout
    )


def test_a_cache_on_a_full_disk(places: Path, tmp_path: Path) -> None:
    cache = mdsx.Cache(tmp_path / "cache", limit="1MB")
    found = fork_server.call(limited, read, 1000, str(places / "packed"), cache, {})
    assert found.startswith(f"6 batches\n{tmp_path}/cache: the cache takes no more shards: the disk is full")
    assert "free some space (`df -h` lists the disks, `mdsx cache` the cache's content), or give another dir" in found


def test_a_home_that_cannot_be_written(places: Path) -> None:
    """Nobody may make a folder in /sys, root neither."""
    home = {"HOME": "/sys", "MDSX_CACHE": ""}
    found = fork_server.call(read, str(places / "packed"), None, home)
    assert found.startswith("6 batches\n/sys/.cache/mdsx: the cache takes no more shards: it cannot be made")
    assert "give another directory: cache=, or $MDSX_CACHE" in found
    found = fork_server.call(read, str(places / "packed"), mdsx.Cache(limit="1GB"), home)
    assert found.startswith("ForbiddenError: /sys/.cache/mdsx: the cache cannot be made: /sys")
    assert "give another directory: cache=, or $MDSX_CACHE" in found


def of_few_descriptors(url: str) -> str:
    return read(url, None, {}, descriptors=4, num_workers=4)


def test_too_few_open_files(url: str) -> None:
    found = fork_server.call(of_few_descriptors, url)
    assert "the process has too many open files (expected at most " in found
    assert "raise the limit before the program starts (`ulimit -n 65536`)" in found


# --- programs


PROGRAM = """
from mdsx.torch import StreamingDataLoader, StreamingDataset
def doubled(sample):
    return 2 * sample["label"]
data = StreamingDataset({url!r}, transform={transform})
next(iter(StreamingDataLoader(data, 8, num_workers=1, multiprocessing_context="spawn")))
"""


def run(program: str, *arguments: str) -> str:
    """Return the last lines of a program that is given as an argument, or through stdin."""
    command, given = ([sys.executable, *arguments, program], None) if arguments else ([sys.executable, "-"], program)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    return "\n".join(done.stderr.splitlines()[-2:])


def test_a_notebook_with_spawn(url: str) -> None:
    """In a notebook, as in `python -c`, `__main__` has no file that a worker could import."""
    found = run(PROGRAM.format(url=url, transform="doubled"), "-c")
    assert "AttributeError: Can't get attribute 'doubled' on <module '__main__'" in found
    assert "define the function or class in a module that workers can import, not in a notebook" in found
    assert "or give multiprocessing_context='fork'" in found


def test_a_program_on_stdin_with_spawn(url: str) -> None:
    found = run(PROGRAM.format(url=url, transform=None))
    assert "RuntimeError: worker 0 ended with exit code 1 before its first batch" in found
    assert "Python cannot start workers by spawn or forkserver from a program on stdin: save it as a file" in found


@pytest.mark.parametrize("where", ["transform", "collate_fn"])
def test_a_forked_worker_that_uses_cuda(url: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this process has forked after it initialised CUDA is the driver's word; the rest is PyTorch's own."""
    parent = os.getpid()
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: os.getpid() != parent)

    def on_gpu(given: Any) -> Any:
        return torch.zeros(1, device="cuda")

    data = StreamingDataset(url, transform=on_gpu if where == "transform" else None)
    options: dict[str, Any] = {"collate_fn": on_gpu} if where == "collate_fn" else {}
    loader = StreamingDataLoader(data, 8, num_workers=1, multiprocessing_context="fork", **options)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess") as raised:
        next(iter(loader))
    place, way_out = raised.value.__notes__
    assert place.startswith(f"mdsx: in {where}, ")
    assert 'return CPU tensors, and give the loader device="cuda"' in way_out
    assert 'or give multiprocessing_context="spawn"' in way_out


def test_a_worker_that_the_kernel_kills(url: str) -> None:
    def huge(sample: Any) -> Any:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        return np.ones(2**40, np.uint8)

    loader = StreamingDataLoader(StreamingDataset(url, transform=huge), 8, num_workers=1)
    with pytest.raises(MemoryError, match="Unable to allocate"):
        next(iter(loader))

    def killed(sample: Any) -> Any:
        os.kill(os.getpid(), 9)

    loader = StreamingDataLoader(StreamingDataset(url, transform=killed), 8, num_workers=1)
    with pytest.raises(RuntimeError, match=r"worker 0 ended with exit code -9 .*was it killed because memory ran out"):
        next(iter(loader))
