"""The quickstart, told from the first tar to the comparison. Each step prints what it does and what it found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np

import mdsx
from mdsx.sizes import format_size
from tools.console import Console
from tools.quickstart import documents, picture
from tools.quickstart.compare import Batch, batches_of, compare, first_step
from tools.quickstart.job import Job
from tools.quickstart.run import Report, Run
from tools.quickstart.watch import CacheWatch, Wire
from tools.s3_server import S3Server

_ROOT = Path(__file__).resolve().parent.parent.parent
_SHARD_SIZE = "256KiB"
_CACHE_PART = 3  # the cache may hold a third of the dataset
_SEED, _LANES, _BLOCK_SHARDS = 7, 4, 8
_KILL_AT = 23  # step; not right behind a checkpoint, so that some work is lost and done again
_CHECKPOINT_EVERY = 5
_FIRST = {"ranks": 2, "workers": 2, "batch_size": 16}
_SECOND_RANKS, _SECOND_WORKERS = 3, 1


@dataclass(frozen=True)
class _Data:
    """The converted dataset: its URL, where it lies behind the server, and how to reach that through the wire."""

    url: str
    local: mdsx.Dataset
    environment: Mapping[str, str]
    wire: Wire

    @property
    def size(self) -> int:
        return int(self.local.shards.index.sizes.sum())


def tell(target: Path) -> bool:
    """Run everything and draw the picture at `target`; whether every promise held. Leaves nothing else behind."""
    console = Console()
    with ExitStack() as stack:
        work = Path(stack.enter_context(TemporaryDirectory(prefix="mdsx-")))
        (work / "tars").mkdir()
        with console.step("1. Pack documents into WebDataset tars") as step:
            tars, count, size = documents.pack(work / "tars")
            step.result = f"{count:,} source files of Python's library, {format_size(size)} of text"
        data = _convert(console, stack, tars, work)
        if data is None:
            return False
        watch = stack.enter_context(CacheWatch(str(work / "cache")))
        runs = _runs(data, work)
        reports = [_train(console, run, data) for run in runs]
        return _conclude(console, data, runs, reports, watch, target)


def _convert(console: Console, stack: ExitStack, tars: str, work: Path) -> _Data | None:
    with console.step("2. Start an S3 server (rclone serve s3)") as step:
        server = S3Server(work / "s3")
        stack.callback(server.stop)
        server.start()
        url = f"{server.make_bucket('quickstart')}/stdlib"
        step.result = server.endpoint
    os.environ.update(server.env())
    command = ["mdsx", "convert", "tar", tars, url, "--shard-size", _SHARD_SIZE, "--processes", "2"]
    console.say(f"   $ {' '.join(command)}")
    if console.run("   Convert the tars onto it", [sys.executable, "-m", *command], directory=_ROOT):
        return None
    address = urlsplit(server.endpoint)
    wire = stack.enter_context(Wire(str(address.hostname), int(address.port or 0)))
    local = mdsx.Dataset(work / "s3" / "quickstart" / "stdlib")
    data = _Data(url, local, {**server.env(), "AWS_ENDPOINT_URL": wire.endpoint}, wire)
    console.say(f"   {len(local):,} samples in {len(local.shards.index.counts)} shards, {format_size(data.size)}")
    return data


def _runs(data: _Data, work: Path) -> tuple[Run, Run]:
    """The run that is killed, and the one that goes on: on other ranks and workers, with another batch size."""
    index = data.local.shards.index
    first = Run(
        number=0,
        **_FIRST,
        url=data.url,
        cache=str(work / "cache"),
        cache_limit=data.size // _CACHE_PART,
        seed=_SEED,
        lanes=_LANES,
        shuffle_block=_BLOCK_SHARDS * index.samples // len(index.counts),
        checkpoint=str(work / "checkpoint.pt"),
        checkpoint_every=_CHECKPOINT_EVERY,
        logs=str(work),
    )
    resumed = {"number": 1, "ranks": _SECOND_RANKS, "workers": _SECOND_WORKERS}
    return first, Run(**{**vars(first), **resumed, "batch_size": _second_batch_size(first, index.samples)})


def _second_batch_size(first: Run, samples: int) -> int:
    """Another batch size, of which the epoch's tail gives each rank a sample, from wherever the run resumes.

    The batches go through `transform`, and no transform makes a batch of 0 samples.
    """
    checkpoints = range(0, samples, first.global_batch * first.checkpoint_every)
    return next(
        size
        for size in range(3 * _LANES, samples, _LANES)  # a multiple, so that each rank stays on its own lanes
        if size != first.batch_size
        and all(
            (samples - position) % (size * _SECOND_RANKS) not in range(1, _SECOND_RANKS) for position in checkpoints
        )
    )


def _train(console: Console, run: Run, data: _Data) -> list[Report]:
    """Run the training: the first until it is killed, the second to the epoch's end."""
    killed = run.number == 0
    title = "3. Train" if killed else "   Resume"
    reports = []
    shape = f"{run.ranks} processes x {run.workers} worker{'s' * (run.workers > 1)}, batch size {run.batch_size}"
    with console.step(f"{title} on {shape}") as step, Job(run, data.environment) as job:
        for report in job.steps():
            reports.append(report)
            text = f"step {report.step}, position {report.stop:,}, {report.loss:.2f} bits per byte"
            step.note(text, milestone=report.step % run.checkpoint_every == 0)
            if killed and report.step >= _KILL_AT:
                job.kill()
                break
        last = reports[-1]
        end = "SIGKILL to all of it after" if killed else "to the epoch's end,"
        step.result = f"{end} step {last.step}, position {last.stop:,}, {last.loss:.2f} bits per byte"
    return reports


def _conclude(
    console: Console,
    data: _Data,
    runs: tuple[Run, Run],
    reports: list[list[Report]],
    watch: CacheWatch,
    target: Path,
) -> bool:
    first, second = runs
    with console.step("4. Compare what was read with what the order predicts"):
        resumed_at = first_step(second)
        batches = batches_of(first, before_step=resumed_at) + batches_of(second)
        keys = [sample["__key__"] for sample in data.local]
        predicted = _predicted(data, first)
        found = compare(batches, [keys[place] for place in predicted])
        downloaded = data.wire.received
    with console.step("   Draw the picture"):
        picture.draw(
            target,
            titles=[f"{run.ranks} processes x {run.workers}, batch size {run.batch_size}" for run in runs],
            reports=reports,
            resumed_at=min(batch.start for batch in batches if batch.run == second.number),
            points=[_points(batches, run, keys, predicted) for run in runs],
        )
    limit, size = first.cache_limit, data.size
    rows = {
        "read": f"{found.read:,} of {len(keys):,} samples",
        "lost": f"{len(found.lost)}" + _some(found.lost),
        "repeated": f"{len(found.repeated)}" + _some(found.repeated),
        "order": f"{len(batches) - len(found.strayed)} of {len(batches)} global batches are the predicted ones",
        "cache": f"at most {watch.highest:,} bytes, limit {limit:,} ({watch.looks:,} looks)",
        "downloaded": f"{format_size(downloaded)}, {downloaded / size:.1f} times the dataset of {format_size(size)}",
        "picture": str(target),
    }
    for name, text in rows.items():
        console.say(f"   {name:<11}{text}")
    good = found.exact and watch.highest <= limit
    console.say("Every sample was read exactly once." if good else "A PROMISE WAS BROKEN.", "green" if good else "red")
    return good


def _predicted(data: _Data, run: Run) -> list[int]:
    """Which sample of the dataset stands at each position of the epoch."""
    counts = data.local.shards.index.counts
    order = mdsx.Order(counts, seed=run.seed, epoch=0, lanes=run.lanes, shuffle_block=run.shuffle_block)
    shards, samples = order.locate(np.arange(len(order)))
    places: list[int] = ((np.cumsum(counts) - counts)[shards] + samples).tolist()
    return places


def _points(batches: list[Batch], run: Run, keys: list[str], predicted: list[int]) -> list[tuple[int, int]]:
    """(position, place in the dataset) of each sample that `run` read."""
    read = {key for batch in batches if batch.run == run.number for key in batch.keys}
    return [(position, place) for position, place in enumerate(predicted) if keys[place] in read]


def _some(keys: list[str]) -> str:
    return f": {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}" if keys else ""
