"""What newcomers have: a dataset, and folders with other files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx

COLUMNS = {"tokens": "uint16[*]", "label": "int64", "text": "str"}


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data`: a dataset of 300 samples; `packed`: a compressed one; `tars`, `tables`, `lines`: other files."""
    root = tmp_path_factory.mktemp("places")
    for name, compression in (("data", None), ("packed", "zstd")):
        with mdsx.Writer(root / name, COLUMNS, shard_size=3000, compression=compression, lengths=["tokens"]) as out:
            for number in range(300):
                tokens = np.arange(number % 20 + 1)
                out.write({"tokens": tokens, "label": number % 3, "text": f"text {number}"})
    for name in ("tars", "tables", "lines", "empty"):
        (root / name).mkdir()
    with tarfile.open(root / "tars" / "a.tar", "w") as tar:
        member = tarfile.TarInfo("0.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    pq.write_table(pa.table({"x": [1]}), root / "tables" / "a.parquet")
    (root / "lines" / "a.jsonl").write_text('{"x": 1}\n')
    return root


@pytest.fixture(scope="session")
def url(places: Path) -> str:
    return str(places / "data")
