"""What the processes of the soak do: read as one rank of a training, or write a dataset."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.account import Delivered, Key, Raised
from tools.conformance.matrix import Shape
from tools.soak.plan import Data, JobPlan
from tools.soak.samples import COLUMNS, columns_of, wrong

GAVE_UP = 3
"""The status of a process that ended with one of mdsx's own errors, as it may: it is restarted."""

_SAVE_EVERY = 5  # batches
_PATIENCE = 50  # errors in a row
_LANES = 4
_BLOCK = 2000  # samples: some shards of each dataset
_MIXED = ("id", "tokens")
_AT_ONCE = 50  # samples
_PAUSE = 0.02  # seconds: so that writing takes long enough to be killed


@dataclass(frozen=True)
class Reading:
    """The task of a reader. It ends before epoch `until`, or at SIGTERM if that is None, or by SIGALRM if it hangs."""

    plan: JobPlan
    root: str  # of the datasets
    cache: mdsx.Cache
    shape: Shape
    files: Path  # its log and its state, but for their suffixes
    rank: int = 0
    state: dict[str, Any] | None = None
    until: int | None = None
    patience: float = 240.0  # seconds to a batch or an error; a stalled request may be tried 5 times, 30 s each

    @property
    def log(self) -> Path:
        return self.files.with_suffix(".log")

    @property
    def saved(self) -> Path:
        return self.files.with_suffix(".state")

    def last_state(self) -> dict[str, Any] | None:
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
    """Check each batch, log its ids, and save the state.

    End with status 0 if asked to end, with GAVE_UP after errors of mdsx, and otherwise with another status.
    """
    warnings.simplefilter("ignore")  # the cache is too small on purpose
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    faulthandler.register(signal.SIGALRM, all_threads=False, chain=True)  # prints the stack; then the signal ends it
    with reading.log.open("ab", buffering=0) as log:
        try:
            deliver(reading, log, stop)
        except Exception as error:
            raised = _raised(error)
            if raised.kind == "other":
                raise
            log.write(raised.to_line().encode())
            sys.exit(GAVE_UP)


def deliver(reading: Reading, log: IO[bytes], stop: list[int]) -> None:
    """Read until there is something in `stop`; log each batch."""
    signal.setitimer(signal.ITIMER_REAL, reading.patience)
    loader = _open(reading)
    failures, since = 0, 0
    while not stop and (reading.until is None or loader.epoch < reading.until):
        batches = iter(loader)
        while not stop:
            signal.setitimer(signal.ITIMER_REAL, reading.patience)
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
            after = loader.state_dict()
            stop_at = after["position"] if after["epoch"] == before["epoch"] else before["epoch_samples"]
            part = Delivered(*key_of(before), stop_at, tuple(batch["id"].tolist()), wrong(batch))
            log.write(part.to_line().encode())
            if since % _SAVE_EVERY == 0:
                _save(loader, reading.saved)
    _save(loader, reading.saved)


def _open(reading: Reading) -> StreamingDataLoader:
    shape = reading.shape
    how: dict[str, Any] = {"cache": reading.cache, "rank": reading.rank, "world_size": shape.world}
    data = dataset_of(reading.plan, reading.root, **how)
    forked: dict[str, Any] = {"multiprocessing_context": "fork", "persistent_workers": reading.plan.steady}
    workers = {"num_workers": shape.workers, **(forked if shape.workers else {})}
    loader = StreamingDataLoader(data, shape.batch, drop_last=False, **workers)
    if reading.state is not None:
        loader.load_state_dict(reading.state)
    return loader


def _save(loader: StreamingDataLoader, path: Path) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(loader.state_dict()))
    os.replace(partial, path)


def _raised(error: Exception) -> Raised:
    kind = "other"
    if isinstance(error, mdsx.MdsxError):
        kind = "mdsx" if error.file else "nameless"
    elif isinstance(error, RuntimeError) and re.match(r"worker \d+ ended with exit code -9 ", str(error)):
        kind = "worker"
    return Raised(kind, type(error).__name__, str(error)[:2000])


def write(url: str, data: Data, pause: float = _PAUSE) -> None:
    columns = {name: COLUMNS[name] for name in data.columns}
    try:
        with mdsx.Writer(url, columns, shard_size=data.shard_size, compression=data.compression, resume=True) as out:
            ids = islice(data.ids, out.samples, None)
            while some := list(islice(ids, _AT_ONCE)):
                out.write_batch(columns_of(data.columns, some))
                time.sleep(pause)
    except mdsx.MdsxError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(GAVE_UP)
