"""mosaicml-streaming over S3: shards of 64 MiB and the order py1e, its defaults; zstd as its documentation has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.bench import workloads
from tools.bench.contestants import mosaicml, s3_link
from tools.bench.contestants.s3_link import URL, place
from tools.bench.measure import Figures

_AT_ONCE = 4096
_streaming: Any = mosaicml.__dict__["streaming"]  # imported there, which made the process ready for it


def prepare(data: str, samples: int, shard_size: int, compression: str | None = None) -> Figures:
    """Write tokens."""
    columns = {"tokens": f"ndarray:uint16:{workloads.WIDTH}"}
    how = {"out": str(place(data)), "columns": columns, "size_limit": shard_size, "compression": compression}
    with _streaming.MDSWriter(**how) as out:
        for first in range(0, samples, _AT_ONCE):
            for each in workloads.columns("tokens", first, min(first + _AT_ONCE, samples))["tokens"]:
                out.write({"tokens": each})
    return {}


def _loader(scratch: str, batch_size: int, workers: int) -> Any:
    dataset = _streaming.StreamingDataset(
        remote=URL, local=str(Path(scratch, "cache")), shuffle=True, shuffle_seed=7, batch_size=batch_size
    )
    return _streaming.StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, drop_last=False)


def cold_epoch(
    data: str, scratch: str, samples: int, batch_size: int, workers: int, rtt: float, rate: float | None
) -> Figures:
    """Into an empty directory."""
    return s3_link.cold_epoch(data, rtt, rate, samples, lambda: _loader(scratch, batch_size, workers))


def first_batch(data: str, scratch: str, batch_size: int, workers: int, rtt: float, rate: float | None) -> Figures:
    """With an empty directory."""
    return s3_link.first_batch(data, rtt, rate, lambda: _loader(scratch, batch_size, workers))
