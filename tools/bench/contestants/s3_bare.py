"""A bare downloader: stores the objects of mdsx's dataset on the same disk, several at a time, and does nothing else.

Its client is configured as mdsx's own. Each object is one GET, streamed into its file; with `sync` the files are
durable in the end, as those of mdsx are.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config

from tools.bench.contestants.s3_link import BUCKET, PREFIX, place, served, size_of
from tools.bench.measure import Figures

_CHUNK = 2**20


def cold_epoch(data: str, scratch: str, rtt: float, rate: float | None, threads: int, sync: bool = False) -> Figures:
    """All objects, `threads` at a time."""
    size = size_of(place(data))
    names = sorted(path.name for path in place(data).iterdir())
    with served(data, rtt=rtt, rate=rate) as link:
        processor, started = time.process_time(), time.perf_counter()
        config = Config(
            max_pool_connections=64,
            retries={"mode": "standard", "total_max_attempts": 5},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        client = boto3.session.Session().client("s3", config=config)

        def store(name: str) -> None:
            body = client.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}")["Body"]
            with Path(scratch, name).open("wb", buffering=0) as file:
                while chunk := body.read(_CHUNK):
                    file.write(chunk)
                if sync:
                    os.fsync(file.fileno())

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(store, names))
        took = time.perf_counter() - started
        counts = link.counts()
        return {
            "MB/s": size / took / 1e6,
            "received": counts.received / size,
            "requests": counts.requests,
            "cpu s": time.process_time() - processor,
        }
