"""The quickstart, from the first tar to the comparison. Each step prints what it does and what it found."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import mdsx
from mdsx.sizes import format_size
from tools.account import count, counted, read_log
from tools.console import Console
from tools.link import Link
from tools.processes import ROOT, CallFailed
from tools.quickstart import documents
from tools.quickstart.job import Job, Run, StepReport
from tools.s3_server import S3Server
from tools.watch import CacheWatch

_PICTURE = "quickstart.png"
_COLOURS = ("tab:blue", "tab:orange")
_SHARD_SIZE = "256KiB"
_CACHE_PART = 3  # the cache may hold a third of the dataset
_SEED, _LANES, _BLOCK_SHARDS = 7, 4, 8
_KILL_AT = 23  # the last step before the kill, if the epoch is long enough
_CHECKPOINT_EVERY = 5  # steps, at most; the kill comes some steps after one, so that work is lost and done again
_FIRST = {"ranks": 2, "workers": 2, "batch_size": 16}
_SECOND_RANKS, _SECOND_WORKERS = 3, 1


def run(given: argparse.Namespace) -> int:
    """Return 1 if a promise was broken. Everything it started has ended then, and only the picture is left."""
    console = Console()
    try:
        with ExitStack() as stack:
            work = Path(stack.enter_context(TemporaryDirectory(prefix="mdsx-")))
            (work / "tars").mkdir()
            with console.step("1. Pack documents into WebDataset tars") as step:
                tars, number, size = documents.pack(work / "tars", given.documents)
                step.result = f"{number:,} source files of Python's library, {format_size(size)} of text"
            data = _convert(console, stack, tars, work)
            watch = stack.enter_context(CacheWatch(str(work / "cache")))
            runs = _runs(data, work)
            reports = [_train(console, each, data) for each in runs]
            return 0 if _conclude(console, data, runs, reports, watch, Path(_PICTURE).absolute()) else 1
    except CallFailed as error:
        print(error, file=sys.stderr)
        return 1


@dataclass(frozen=True)
class _Data:
    """The converted dataset: its URL, the server's copy of it, and the link through which it is read."""

    url: str
    local: mdsx.Dataset
    environment: Mapping[str, str]
    link: Link

    @property
    def size(self) -> int:
        return int(self.local.shards.index.sizes.sum())


def _convert(console: Console, stack: ExitStack, tars: str, work: Path) -> _Data:
    with console.step("2. Start an S3 server (rclone serve s3)") as step:
        server = stack.enter_context(S3Server(work / "s3"))
        url = f"{server.make_bucket('quickstart')}/stdlib"
        step.result = server.endpoint
    os.environ.update(server.env())
    command = ["mdsx", "convert", "tar", tars, url, "--shard-size", _SHARD_SIZE, "--processes", "2"]
    console.print(f"   $ {' '.join(command)}")
    if console.run("   Convert the tars onto it", [sys.executable, "-m", *command], directory=ROOT):
        raise CallFailed("the conversion failed")
    link = stack.enter_context(Link(server.endpoint))
    local = mdsx.Dataset(work / "s3" / "quickstart" / "stdlib")
    data = _Data(url, local, {**server.env(), "AWS_ENDPOINT_URL": link.endpoint}, link)
    console.print(f"   {len(local):,} samples in {len(local.shards.index.counts)} shards, {format_size(data.size)}")
    return data


def _runs(data: _Data, work: Path) -> tuple[Run, Run]:
    """The run that is killed, and the one that resumes: on other ranks and workers, with another batch size."""
    index = data.local.shards.index
    kill_at = min(_KILL_AT, index.samples // (_FIRST["ranks"] * _FIRST["batch_size"]) // 2)
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
        checkpoint_every=min(_CHECKPOINT_EVERY, kill_at - 1),
        kill_at=kill_at,
        logs=str(work),
    )
    resumed = {"number": 1, "ranks": _SECOND_RANKS, "workers": _SECOND_WORKERS}
    return first, Run(**{**vars(first), **resumed, "batch_size": _second_batch_size(first, index.samples)})


def _second_batch_size(first: Run, samples: int) -> int:
    """Another batch size with which each rank has a sample of the epoch's tail, wherever the run resumes.

    The batches go through `transform`, and no transform makes a batch of 0 samples.
    """
    checkpoints = range(0, samples, first.global_batch * first.checkpoint_every)
    return next(
        size
        for size in range(3 * _LANES, samples, _LANES)  # a multiple, so that each rank stays on its own lanes
        if size != first.batch_size
        and all((samples - at) % (size * _SECOND_RANKS) not in range(1, _SECOND_RANKS) for at in checkpoints)
    )


def _train(console: Console, run: Run, data: _Data) -> list[StepReport]:
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
            if killed and report.step >= run.kill_at:
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
    reports: list[list[StepReport]],
    watch: CacheWatch,
    target: Path,
) -> bool:
    with console.step("4. Compare what was read with what the order predicts"):
        lives = [[[read_log(run.log_file(rank), (0, 0))] for rank in range(run.ranks)] for run in runs]
        resumed_at = min(each.start for (life,) in lives[1] for each in life.delivered)
        keys = [sample["__key__"] for sample in data.local]
        predicted = _predicted(data, runs[0])
        starts = [(0, 0), (0, resumed_at)]
        found = count(lives, starts, [[keys[place] for place in predicted]])
        downloaded = data.link.counts().received
    with console.step("   Draw the picture"):
        read = [counted(lives[:1], starts), counted(lives[1:], starts[1:])]
        points = [
            [(at, place) for at, place in enumerate(predicted) if keys[place] in ids]
            for ids in ({id_ for each in part for id_ in each.ids} for part in read)
        ]
        titles = [f"{run.ranks} processes x {run.workers}, batch size {run.batch_size}" for run in runs]
        _draw(target, titles, reports, resumed_at, points)
    limit, size = runs[0].cache_limit, data.size
    rows = {
        "read": f"{found.counted:,} of {len(keys):,} samples",
        "lost": f"{found.lost}",
        "repeated": f"{found.repeated}",
        "order": f"{found.batches - found.strayed} of {found.batches} global batches are the predicted ones",
        "cache": f"at most {watch.highest:,} bytes, limit {limit:,} ({watch.looks:,} looks)",
        "downloaded": f"{format_size(downloaded)}, {downloaded / size:.1f} times the dataset of {format_size(size)}",
        "picture": str(target),
    }
    for name, text in rows.items():
        console.print(f"   {name:<11}{text}")
    if found.first:
        console.print(f"   The first other batch: {found.first}", style="red")
    good = found.exact and watch.highest <= limit
    console.print(
        "Every sample was read exactly once." if good else "A PROMISE WAS BROKEN.", style="green" if good else "red"
    )
    return good


def _predicted(data: _Data, run: Run) -> list[int]:
    """The number of the sample at each position of the epoch."""
    counts = data.local.shards.index.counts
    order = mdsx.Order(counts, seed=run.seed, epoch=0, lanes=run.lanes, shuffle_block=run.shuffle_block)
    shards, samples = order.locate(np.arange(len(order)))
    places: list[int] = ((np.cumsum(counts) - counts)[shards] + samples).tolist()
    return places


def _draw(
    path: Path,
    titles: Sequence[str],
    reports: Sequence[Sequence[StepReport]],
    resumed_at: int,
    points: Sequence[Sequence[tuple[int, int]]],
) -> None:
    """Draw the loss of each run, and the order in which it read: `points` are (position, sample)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (loss, order) = pyplot.subplots(2, 1, figsize=(9, 9), sharex=True, layout="constrained")
    for title, colour, steps, read in zip(titles, _COLOURS, reports, points, strict=True):
        loss.plot([step.stop for step in steps], [step.loss for step in steps], color=colour, label=title)
        order.scatter(*zip(*read, strict=True), s=2, color=colour)
    loss.axvline(resumed_at, color="grey", linestyle=":", label="checkpoint resumed from")
    order.axvline(resumed_at, color="grey", linestyle=":")
    loss.set(title="Loss", ylabel="bits per byte")
    loss.legend()
    order.set(title="Order", xlabel="position in the epoch", ylabel="sample in the dataset")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
