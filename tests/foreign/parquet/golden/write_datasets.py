"""Write golden/datasets, with Hugging Face's datasets 4: `python write_datasets.py`, in an environment of its own."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
from PIL import Image

OUT = Path(__file__).parent / "datasets"

FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "audio": datasets.Audio(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "vector": datasets.Sequence(datasets.Value("float32"), length=3),
        "tokens": datasets.Sequence(datasets.Value("int32")),
        "matrix": datasets.Array2D((2, 2), "int64"),
        "messages": [{"role": datasets.Value("string"), "content": datasets.Value("string")}],
        "text": datasets.Value("large_string"),
    }
)


def png(number: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((2, 3, 3), number, np.uint8)).save(out, "PNG")
    return out.getvalue()


def sample(number: int) -> dict[str, object]:
    return {
        "image": {"bytes": png(number), "path": f"{number}.png"},
        "audio": {"bytes": b"RIFF audio %d" % number, "path": None},
        "label": number % 2,
        "vector": [number, 0.5, -1],
        "tokens": list(range(number)),
        "matrix": [[number, 1], [2, 3]],
        "messages": [{"role": "user", "content": f"hello {number}"}, {"role": "assistant", "content": None}],
        "text": f"text {number}",
    }


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    rows = [sample(number) for number in range(6)]  # as Arrow data: encoding audio would need torchcodec
    data = datasets.Dataset(datasets.table.InMemoryTable(pa.Table.from_pylist(rows, FEATURES.arrow_schema)))
    for shard in range(2):
        name = f"train-{shard:05d}-of-00002.parquet"
        data.shard(2, shard, contiguous=True).to_parquet(OUT / name, batch_size=2)
