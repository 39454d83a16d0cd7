"""Writing and reading a dataset of Ray Data: mdsx and Ray's own Parquet, with the same blocks.

The blocks are in memory. A write of a few rows comes first, so that Ray and its workers have started.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.peers import Lazy
from tools.processes import Call

ray, engine = Lazy("ray"), Lazy("mdsx.engines.ray")
_ROWS = {"text": 400_000, "vectors": 400_000}
_COLUMNS = {
    "text": {"id": "int64", "text": "str"},
    "vectors": {"id": "int64", "text": "str", "v": "float32[128]"},
}
_BLOCKS, _CORES, _WARM = 8, 2, 1000


def subjects(scale: float) -> tuple[Subject, ...]:
    sizes = {kind: max(int(rows * scale), _WARM) for kind, rows in _ROWS.items()}
    return tuple(_subject(action, kind, rows) for action in ("write", "read") for kind, rows in sizes.items())


def _subject(action: str, kind: str, rows: int) -> Subject:
    def one(name: str, way: str, shown: str = "peer") -> Contestant:
        call = Call(f"{__name__}:{action}", {"way": way, "kind": kind, "rows": rows}, "ray")
        return Contestant(name, call, kind=shown)

    mdsx, parquet = one("mdsx", "mdsx", "mdsx"), one("Parquet, uncompressed", "none")
    text = f"Ray Data, {kind}, {action} a dataset"
    goal = Goal(f"{text}: 0.6 of uncompressed Parquet", mdsx.name, (parquet.name,), at_least=0.6)
    return Subject(
        name=f"ray-{action}-{kind}",
        title=f"{text} of {rows:,} rows, {_BLOCKS} blocks on {_CORES} cores",
        contestants=[mdsx, parquet, one("Parquet, snappy", "snappy")],
        goals=[goal],
        figure="rows/s",
        limit=300,
        note="All without compression but for snappy. mdsx alone writes and checks checksums, and syncs to disk.",
    )


def write(way: str, kind: str, rows: int) -> Figures:
    """Return the rate of one write, after one that warms up; "mdsx", or a codec of Parquet."""
    with _started() as folder:
        small, large = _dataset(kind, _WARM), _dataset(kind, rows)
        _write(way, kind, small, f"{folder}/small")
        _, took = timed(lambda: _write(way, kind, large, f"{folder}/large"))
        return {"rows/s": rows / took}


def read(way: str, kind: str, rows: int) -> Figures:
    """Return the rate of one read of all columns, after one of a few rows."""
    with _started() as folder:
        for name, count in (("small", _WARM), ("large", rows)):
            _write(way, kind, _dataset(kind, count), f"{folder}/{name}")
        assert _read(way, f"{folder}/small") == _WARM
        found, took = timed(lambda: _read(way, f"{folder}/large"))
        assert found == rows
        return {"rows/s": rows / took}


@contextmanager
def _started() -> Iterator[str]:
    folder = tempfile.mkdtemp()
    sockets = tempfile.mkdtemp(dir="/tmp")  # the paths of Ray's sockets must be short
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    memory = 2 * 2**30
    ray.init(
        "local",
        num_cpus=_CORES,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=memory,
        _temp_dir=sockets,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield folder
    finally:
        ray.shutdown()
        shutil.rmtree(sockets, ignore_errors=True)


def _dataset(kind: str, rows: int) -> Any:
    return ray.data.range(rows, override_num_blocks=_BLOCKS).map_batches(_filled, fn_args=(kind,)).materialize()


def _filled(batch: dict[str, Any], kind: str) -> dict[str, Any]:
    ids = batch["id"]
    repeats = 80 if kind == "text" else 16
    found = {"id": ids, "text": [f"{number:08x}" * repeats for number in ids]}
    return found if kind == "text" else {**found, "v": np.outer(ids, np.arange(128)).astype(np.float32)}


def _write(way: str, kind: str, dataset: Any, folder: str) -> None:
    if way == "mdsx":
        dataset.write_datasink(engine.Datasink(folder, _COLUMNS[kind]))
    else:
        dataset.write_parquet(folder, compression=way)


def _read(way: str, folder: str) -> int:
    """Return the number of rows that were read."""
    found = engine.read(folder) if way == "mdsx" else ray.data.read_parquet(folder)
    return int(sum(bundle.num_rows() for bundle in found.materialize().iter_internal_ref_bundles()))
