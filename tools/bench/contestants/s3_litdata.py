"""LitData over S3, with its TokensLoader and chunks of as many samples as mdsx's shards hold; downloads by obstore.

TokensLoader reads no compressed chunks: these are of dicts of arrays, as of any other data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"  # it asks PyPI otherwise

import boto3  # noqa: F401  it imports it when it is first used
import litdata
import torch
from litdata.streaming import downloader
from litdata.streaming.item_loader import TokensLoader

from tools.bench import workloads
from tools.bench.contestants import s3_link
from tools.bench.contestants.s3_link import URL, place
from tools.bench.measure import Figures

downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # its own S3 client insists on TLS otherwise


def prepare(data: str, samples: int, shard_size: int, compression: str | None = None) -> Figures:
    """Write tokens."""
    how: dict[str, Any]
    if compression is None:
        how = {"chunk_size": shard_size // 2 // workloads.WIDTH * workloads.WIDTH, "item_loader": TokensLoader()}
    else:
        how = {"chunk_bytes": shard_size, "compression": compression}
    litdata.optimize(
        fn=_tokens if compression is None else _sample,
        inputs=list(range(samples)),
        output_dir=str(place(data)),
        num_workers=1,
        start_method="fork",
        verbose=False,
        **how,
    )
    return {}


def _tokens(number: int) -> Iterator[Any]:
    yield torch.from_numpy(workloads.columns("tokens", number, number + 1)["tokens"][0])


def _sample(number: int) -> Any:
    return {"tokens": workloads.columns("tokens", number, number + 1)["tokens"][0]}


def _loader(scratch: str, batch_size: int, workers: int, compressed: bool = False) -> Any:
    dataset = litdata.StreamingDataset(
        URL,
        cache_dir=str(Path(scratch, "cache")),
        item_loader=None if compressed else TokensLoader(block_size=workloads.WIDTH),
        shuffle=True,
        drop_last=False,
        seed=7,
        max_cache_size="100GB",
        storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
    )
    return litdata.StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)


def cold_epoch(
    data: str, scratch: str, samples: int, batch_size: int, workers: int, rtt: float, rate: float | None
) -> Figures:
    """Into an empty directory."""
    return s3_link.cold_epoch(data, rtt, rate, samples, lambda: _loader(scratch, batch_size, workers))


def first_batch(
    data: str,
    scratch: str,
    batch_size: int,
    workers: int,
    rtt: float,
    rate: float | None,
    compressed: bool = False,
) -> Figures:
    """With an empty directory."""
    return s3_link.first_batch(data, rtt, rate, lambda: _loader(scratch, batch_size, workers, compressed))
