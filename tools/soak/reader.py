"""One rank of a training that reads, checks each batch, logs its ids, and saves its state."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.account import Delivered, Key, Raised
from tools.conformance.matrix import Shape
from tools.soak.plan import JobPlan
from tools.soak.processes import GAVE_UP
from tools.soak.samples import wrong

_SAVE_EVERY = 5  # batches
_PATIENCE = 50  # errors in a row
_LANES = 4
_BLOCK = 2000  # samples: some shards of each dataset
_MIXED = ("id", "tokens")


@dataclass(frozen=True)
class Reading:
    """The task of a reader. It ends before epoch `until`, or at SIGTERM if that is None."""

    plan: JobPlan
    root: str  # of the datasets
    shape: Shape
    rank: int
    cache: str
    cache_limit: int
    state: dict[str, Any] | None
    log: Path
    saved: Path
    until: int | None = None

    @property
    def start(self) -> Key:
        return key_of(self.state)

    def last_state(self) -> dict[str, Any] | None:
        """The state that it saved last, or the one that it began with."""
        return json.loads(self.saved.read_text()) if self.saved.exists() else self.state


def key_of(state: dict[str, Any] | None) -> Key:
    return (state["epoch"], state["position"]) if state is not None else (0, 0)


def dataset_of(plan: JobPlan, root: str, **options: Any) -> StreamingDataset:
    """The dataset that a job reads; `root` has all datasets."""
    urls = [f"{root}/{data.name}" for data in plan.data]
    source: Any = urls[0]
    if plan.weights:
        mixed = {data.name: (url, weight) for data, url, weight in zip(plan.data, urls, plan.weights, strict=True)}
        source = mdsx.Mixture(mixed, columns=_MIXED, epoch_samples=8_000)
    return StreamingDataset(source, seed=plan.seed, shuffle=mdsx.Shuffle(_LANES, _BLOCK), **options)


def read(reading: Reading) -> None:
    """End with status 0 if asked to end, otherwise with GAVE_UP."""
    warnings.simplefilter("ignore")  # the cache is too small on purpose
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    with reading.log.open("ab", buffering=0) as log:
        try:
            _deliver(reading, log, stop)
        except (mdsx.MdsxError, RuntimeError) as error:
            # PyTorch reports a killed worker wherever its process is at that moment, also between two batches.
            raised = _raised(error)
            if raised.kind == "other":
                raise
            log.write(raised.to_line().encode())
            sys.exit(GAVE_UP)


def _deliver(reading: Reading, log: IO[bytes], stop: list[int]) -> None:
    """Read until there is something in `stop`; log each batch."""
    loader = _open(reading)
    failures, since = 0, 0
    while not stop and (reading.until is None or loader.epoch < reading.until):
        batches = iter(loader)
        while not stop:
            before = loader.state_dict()
            try:
                batch = next(batches)
            except StopIteration:
                break
            except Exception as error:  # the batch has to come again
                log.write(_raised(error).to_line().encode())
                failures += 1
                if failures > _PATIENCE:
                    sys.exit(GAVE_UP)
                continue
            failures, since = 0, since + 1
            log.write(_delivered(batch, before, loader).to_line().encode())
            if since % _SAVE_EVERY == 0:
                _save(loader, reading.saved)
    _save(loader, reading.saved)


def _open(reading: Reading) -> StreamingDataLoader:
    shape = reading.shape
    data = dataset_of(
        reading.plan,
        reading.root,
        cache=mdsx.Cache(reading.cache, limit=reading.cache_limit),
        rank=reading.rank,
        world_size=shape.world,
    )
    more: dict[str, Any] = {}
    if shape.workers:
        more = {"multiprocessing_context": "fork", "persistent_workers": reading.plan.steady}
    loader = StreamingDataLoader(data, shape.batch, num_workers=shape.workers, drop_last=False, **more)
    if reading.state is not None:
        loader.load_state_dict(reading.state)
    return loader


def _delivered(batch: dict[str, Any], before: dict[str, Any], loader: StreamingDataLoader) -> Delivered:
    after = loader.state_dict()
    same = after["epoch"] == before["epoch"]
    stop = after["position"] if same else before["epoch_samples"]
    return Delivered(before["epoch"], before["position"], stop, tuple(batch["id"].tolist()), wrong(batch))


def _save(loader: StreamingDataLoader, path: Path) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(loader.state_dict()))
    os.replace(partial, path)


def _raised(error: Exception) -> Raised:
    kind = "other"
    if isinstance(error, mdsx.MdsxError):
        kind = "mdsx" if error.file else "nameless"
    elif isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
        kind = "worker"
    return Raised(kind, type(error).__name__, str(error)[:2000])
