"""Writes a dataset with Ray Data, and reads it back with Ray Data.

pip install 'mdsx[ray]'
python ray_write.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray

import mdsx


def tokenize(batch: dict[str, Any]) -> dict[str, Any]:
    """Stand in for real work: 64 tokens for each number."""
    tokens = np.arange(64) + batch["id"][:, None]
    return {
        "id": batch["id"],
        "tokens": tokens.astype(np.uint16),
        "text": [f"sample {number}" for number in batch["id"]],
    }


def main(folder: Path) -> None:
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    rows = ray.data.range(10_000, override_num_blocks=100).map_batches(tokenize)

    columns = {"id": "int64", "tokens": "uint16[64]", "text": "str"}
    sink = mdsx.engines.ray.Datasink(folder / "corpus", columns, shard_size="1MiB")
    rows.write_datasink(sink)
    print(f"{sink.written.samples} samples in {sink.written.shards} shards")

    dataset = mdsx.Dataset(folder / "corpus")
    print("in order:", all(sample["id"] == number for number, sample in enumerate(dataset)))

    found = mdsx.engines.ray.read(folder / "corpus", columns=["id", "text"])
    print("read by Ray:", found.count(), found.take(2))


if __name__ == "__main__":
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, logging_level="warning")
    try:
        main(Path(sys.argv[1]))
    finally:
        ray.shutdown()
