"""How the cost of a run grows: with the shards, the lanes, the components, and the processes that share a cache.

Each point is a fresh process, without PyTorch; with its children, where they are what grows. Seconds are of processor
time. Memory is what processes have for themselves, beyond what the program has once `mdsx.Loader` is imported.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import psutil

import mdsx
from mdsx.base.sizes import format_size
from mdsx.format import MAX_SHARDS, filenames
from mdsx.loader import Loader
from tools.bench.measure import cpu_seconds, memory_of
from tools.pages import table
from tools.processes import Call, stream
from tools.scale.chart import chart
from tools.scale.made import COLUMNS, SAMPLES, make, served

_LIMIT = 600.0  # seconds
_BATCH, _BATCHES = 512, 40
_SHARDS = 2**16  # over all components
_SHARED, _BYTES, _EPOCHS = 256, 256, 2  # shards, bytes of a sample and epochs that processes read


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows, and how a point is measured: a function from the size and a folder to seconds and bytes."""

    name: str
    sizes: Sequence[int]
    measured: Callable[[int, Path], tuple[float, int]]


def sections(axes: Sequence[Axis] | None = None, pictures: Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield the name and the table of each axis: once more with each new row. Write its chart into `pictures`."""
    for axis in AXES if axes is None else axes:
        rows, points = list[list[str]](), list[tuple[int, float, float]]()
        for size in axis.sizes:
            with tempfile.TemporaryDirectory(prefix="mdsx-scale-") as scratch:
                found = (size, *axis.measured(size, Path(scratch)))
            before = points[-1] if points else (0, 0.0, 0.0)
            grown = [f"{now / then:.1f} x" if then else "" for now, then in zip(found, before, strict=True)]
            rows.append([f"{size:,}", f"{found[1]:.2f} s", format_size(found[2]), *grown])
            heads = [axis.name, "CPU", "memory", f"{axis.name} grew", "CPU grew", "memory grew"]
            points.append(found)
            if pictures is not None:
                Path(pictures, f"growth-{axis.name}.svg").write_text(chart(axis.name, points), encoding="utf-8")
            yield f"growth-{axis.name}", table(heads, rows, right=range(6))


def _shards(size: int, folder: Path) -> tuple[float, int]:
    """A batch, and one at 90 % of the epoch; of several datasets if one may not have that many shards."""
    datasets = -(-size // MAX_SHARDS)
    return _served(folder, size // datasets, datasets=datasets, lanes=8, batches=1, resume=True)


def _lanes(size: int, folder: Path) -> tuple[float, int]:
    return _served(folder, _SHARDS, lanes=size, batches=_BATCHES)


def _components(size: int, folder: Path) -> tuple[float, int]:
    return _served(folder, _SHARDS // size, datasets=size, lanes=8, batches=_BATCHES)


def _processes(size: int, folder: Path) -> tuple[float, int]:
    return _answer("epochs", folder, folder=str(folder), ranks=size)


AXES = [
    Axis("shards", (10**3, 10**4, 10**5, 10**6, 10**7), _shards),
    Axis("lanes", (1, 8, 64, 512), _lanes),
    Axis("components", (1, 4, 16, 64), _components),
    Axis("processes", (1, 4, 16, 32), _processes),
]


def _served(
    folder: Path, shards: int, *, datasets: int = 1, lanes: int, batches: int, resume: bool = False
) -> tuple[float, int]:
    """Measure `read` of datasets that this process serves."""
    made = make()
    folder.joinpath(filenames.INDEX).write_bytes(made.part(shards))
    folder.joinpath(filenames.shard(0, compressed=False)).write_bytes(made.shard)
    with served(folder) as url:
        return _answer("read", folder, url=url, datasets=datasets, lanes=lanes, batches=batches, resume=resume)


def _answer(function: str, scratch: Path, **arguments: object) -> tuple[float, int]:
    """Call a function of this module in a fresh process. Raise CallFailed."""
    *_, (cpu, memory) = stream(Call(f"{__name__}:{function}", arguments), scratch=scratch, limit=_LIMIT)
    return cpu, memory


def read(url: str, datasets: int, lanes: int, batches: int, resume: bool) -> tuple[float, int]:
    """Open as many datasets and read batches of all of them; with `resume`, continue at 90 % of the epoch."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        before = _used()
        opened = [mdsx.Dataset(url, cache=mdsx.Cache(cache, limit="1GB")) for _ in range(datasets)]
        data = mdsx.Mixture([(each, 1.0) for each in opened]) if datasets > 1 else opened[0]
        loader = Loader(data, _BATCH, seed=1, shuffle=mdsx.Shuffle(lanes=lanes))
        for batch in islice(loader, batches):
            assert len(batch["id"]) == _BATCH
        if resume:
            loader.load_state_dict({**loader.state_dict(), "position": sum(map(len, opened)) // 10 * 9})
            assert len(next(iter(loader))["id"]) == _BATCH
        return _since(before)


def epochs(folder: str, ranks: int) -> tuple[float, int]:
    """Read epochs in as many processes, each a rank, through a cache that holds half of the dataset."""
    data, row = Path(folder, "data"), _BYTES + 64
    with mdsx.Writer(data, COLUMNS, shard_size=SAMPLES * row, compression="zstd") as out:
        for number in range(_SHARED * SAMPLES):
            out.write({"id": number, "data": np.random.default_rng(number).bytes(_BYTES)})
    cache = mdsx.Cache(Path(folder, "cache"), limit=_SHARED * SAMPLES * row // 2)
    with multiprocessing.get_context("fork").Pool(ranks) as pool:
        found = pool.starmap(_rank, [(str(data), cache, rank, ranks) for rank in range(ranks)], chunksize=1)
    return sum(cpu for cpu, _ in found), sum(memory for _, memory in found)


def _rank(data: str, cache: mdsx.Cache, rank: int, ranks: int) -> tuple[float, int]:
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    before = _used()
    shuffle = mdsx.Shuffle(lanes=32)
    loader = Loader(data, _BATCH // ranks, cache=cache, seed=1, shuffle=shuffle, rank=rank, world_size=ranks)
    for _ in range(_EPOCHS):
        for _ in loader:
            pass
    return _since(before)


def _used() -> tuple[float, int]:
    """Return the seconds of this process and its children, and its own bytes."""
    return cpu_seconds(), memory_of(psutil.Process())["private"]


def _since(before: tuple[float, int]) -> tuple[float, int]:
    cpu, memory = _used()
    return cpu - before[0], memory - before[1]
