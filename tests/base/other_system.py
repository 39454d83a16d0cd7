"""Writes, caches, reads and trains without the features that only Linux has: `python other_system.py DIR`.

Workers are spawned, as on macOS, so each of them runs the lines at the top again.
"""

from __future__ import annotations

import os
import sys
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]  # tests/torch would hide torch

ONLY_LINUX = (
    "O_PATH", "O_TMPFILE", "SEEK_DATA", "SEEK_HOLE", "copy_file_range", "eventfd", "fdatasync", "memfd_create",
    "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "preadv", "pwritev", "sched_getaffinity", "sendfile",
    "splice",
)  # fmt: skip
for name in ONLY_LINUX:
    if hasattr(os, name):
        delattr(os, name)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Hide `/proc` from mdsx. (PyTorch for Linux needs it.)"""
    if event == "open" and str(arguments[0]).startswith("/proc/"):
        callers = [frame.f_code.co_filename for frame, _ in islice(traceback.walk_stack(None), 8)]
        if any(f"{os.sep}mdsx{os.sep}" in name for name in callers):
            raise FileNotFoundError(2, "there is no such thing here", arguments[0])


sys.addaudithook(_refuse)

import mdsx  # noqa: E402
from mdsx.torch import StreamingDataLoader, StreamingDataset  # noqa: E402

COUNT = 300


def main() -> None:
    work = Path(sys.argv[1])
    for compression in (None, "zstd"):
        url, cache = work / f"data-{compression}", work / f"cache-{compression}"
        with mdsx.Writer(url, {"id": "int64", "text": "str"}, shard_size=2000, compression=compression) as out:
            for number in range(COUNT):
                out.write({"id": number, "text": f"text {number}"})
        data = mdsx.Dataset(url, cache=cache)
        assert [data[number]["text"] for number in range(COUNT)] == [f"text {number}" for number in range(COUNT)]
        for workers in (0,) if compression is None else (0, 1):
            options: dict[str, Any] = (
                {"multiprocessing_context": "spawn", "persistent_workers": True} if workers else {}
            )
            streaming = StreamingDataset(url, cache=mdsx.Cache(cache, limit="1MB"))
            loader = StreamingDataLoader(streaming, 20, num_workers=workers, drop_last=False, **options)
            for _ in range(2):
                assert sorted(number for batch in loader for number in batch["id"].tolist()) == list(range(COUNT))
        shards = list(cache.glob("*/*.mdsx"))
        assert bool(shards) == (compression is not None)
        assert all(shard.stat().st_blocks * 512 >= shard.stat().st_size for shard in shards), "with real blocks"
    assert not any(hasattr(os, name) for name in ONLY_LINUX)
    print("trained")


if __name__ == "__main__":
    main()
