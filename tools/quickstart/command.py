"""The quickstart, from the first tar to the comparison. Each step prints what it does and what it found."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import mdsx
from mdsx.base.sizes import format_size
from mdsx.datasets import excerpt_of
from mdsx.storage import open_storage
from tools.account import Count, count, read_log
from tools.console import Console
from tools.link import Link
from tools.processes import ROOT, CallFailed
from tools.quickstart.job import CHECKPOINT_EVERY, LANES, SEED, Run, steps_of
from tools.servers.az import AzureServer
from tools.servers.gs import GoogleServer
from tools.servers.s3 import S3Server
from tools.watch import CacheWatch

_SERVERS = {"s3": S3Server, "gs": GoogleServer, "az": AzureServer}
_TARS = 8
_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}
_SHARD_SIZE = "256KiB"
_CACHE_PART = 3  # the cache may hold a third of the dataset
_BLOCK_SHARDS = 8
_LEADING = """\
Documents become a dataset in object storage, a training reads it, dies, and resumes on other ranks.
At the end, what was read is compared with what the order predicts: a function of the seed alone.
"""
_NEXT = """
What next?
  the same in your own program     README.md, "Write a dataset" and "Train, and resume"
  your tars, Parquet or MDS files  docs/data.md in place, docs/converting.md to convert
  your trainer                     docs/trainers.md, and complete programs in examples/
  another cloud                    python3 -m tools quickstart --storage gs"""
_DONE_AGAIN = 2  # steps between the last checkpoint and the kill


def run(given: argparse.Namespace) -> int:
    """Return 1 if a promise was broken. Everything it started has ended then."""
    console = Console()
    console.print(_LEADING)
    try:
        with ExitStack() as stack:
            work = Path(stack.enter_context(TemporaryDirectory(prefix="mdsx-")))
            with console.step("1. Pack documents into WebDataset tars, as you may have them") as step:
                tars, number, text = pack(work, given.documents)
                step.result = f"{number:,} source files of Python's library, {format_size(text)} of text"
            url, local, link = _convert(console, stack, given.storage, tars, work)
            index = excerpt_of(local).shards.index
            size, limit = int(index.sizes.sum()), int(index.sizes.sum()) // _CACHE_PART
            block = _BLOCK_SHARDS * index.samples // len(index.counts)
            first = Run(0, 2, 2, 16, url=url, directory=str(work), cache_limit=limit, shuffle_block=block)
            second = replace(first, number=1, ranks=3, workers=1, batch_size=12)
            steps = index.samples // (first.ranks * first.batch_size)
            kill_at = steps // 2 // CHECKPOINT_EVERY * CHECKPOINT_EVERY + _DONE_AGAIN
            watch = stack.enter_context(CacheWatch(str(work / "cache")))
            console.print("   Each rank reads its part of every global batch through a cache of a third of the data.")
            _train(console, first, "3. Train", kill_at)
            console.print("   A checkpoint has loader.state_dict(), which fits any ranks, workers and batch size.")
            _train(console, second, "   Resume")
            found = _compare(console, (first, second), local)
            received = link.counts().received
    except CallFailed as error:
        print(error, file=sys.stderr)
        return 1
    other = f"; the first other batch: {found.first}" if found.first else ""
    for name, result in {
        "read": f"{found.counted:,} of {index.samples:,} samples",
        "lost": f"{found.lost}",
        "repeated": f"{found.repeated}",
        "order": f"{found.batches - found.strayed} of {found.batches} global batches are the predicted ones{other}",
        "cache": f"at most {watch.highest:,} bytes, limit {limit:,} ({watch.looks:,} looks)",
        "downloaded": f"{format_size(received)}, {received / size:.1f} times the dataset of {format_size(size)}",
    }.items():
        console.print(f"   {name:<11}{result}")
    good = found.exact and watch.highest <= limit
    console.print("Every sample was read exactly once." if good else "A PROMISE WAS BROKEN.")
    console.print(_NEXT)
    return int(not good)


def pack(directory: Path, most: int) -> tuple[str, int, int]:
    """Write documents to WebDataset tars; return (names with braces, documents, bytes).

    Their number is a multiple of LANES, as every global batch is, so that each rank has a sample of the last batch:
    `transform` cannot make an empty one.
    """
    documents = list(islice(_documents(), most // LANES * LANES))
    for number in range(_TARS):
        with tarfile.open(directory / f"stdlib-{number:04}.tar", "w") as tar:
            for place, (path, text) in enumerate(documents[number::_TARS]):
                about = {"path": path, "bytes": len(text), "lines": text.count(b"\n")}
                for kind, content in (("txt", text), ("json", json.dumps(about).encode())):
                    member = tarfile.TarInfo(f"{number:02}-{place:05}.{kind}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    names = f"{directory}/stdlib-{{0000..{_TARS - 1:04}}}.tar"
    return names, len(documents), sum(len(text) for _, text in documents)


def _documents() -> Iterator[tuple[str, bytes]]:
    """Yield (path, text) of each file of Python's library, then, in case that is too small, of installed packages."""
    for root in map(Path, (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if not _FOREIGN & set(inside.parts):
                text = path.read_bytes()
                with contextlib.suppress(UnicodeDecodeError):  # a few of the library's own tests
                    text.decode()
                    yield inside.as_posix(), text


def _convert(console: Console, stack: ExitStack, storage: str, tars: str, work: Path) -> tuple[str, mdsx.Dataset, Link]:
    """Return the converted dataset's URL, a local copy of it, and the link through which it will be read."""
    kind = _SERVERS[storage]
    with console.step(f"2. Start a local server of {storage}://, in place of your bucket") as step:
        server = stack.enter_context(kind(work / "server"))
        url = f"{server.make_bucket('quickstart')}/stdlib"
        step.result = server.endpoint
    os.environ.update(server.env())
    command = ["mdsx", "convert", "tar", tars, url, "--shard-size", _SHARD_SIZE, "--num-workers", "2"]
    console.print(f"   $ {' '.join(command)}")
    title = "   Convert the tars onto it: shards first, the index last"
    if console.run(title, [sys.executable, "-m", *command], directory=ROOT):
        raise CallFailed("the conversion failed")
    stored, copy = open_storage(url), open_storage(work / "copy")
    for entry in stored.list():
        copy.put(entry.key, stored.get(entry.key).data)
    local = mdsx.Dataset(work / "copy")
    link = stack.enter_context(Link(server.endpoint))
    os.environ.update({key: text.replace(server.endpoint, link.endpoint) for key, text in server.env().items()})
    sizes = excerpt_of(local).shards.index.sizes
    console.print(f"   {len(local):,} samples in {len(sizes)} shards, {format_size(int(sizes.sum()))}")
    return url, local, link


def _train(console: Console, run: Run, title: str, kill_at: int | None = None) -> None:
    """Run the training until it is killed, or to the epoch's end."""
    with console.step(f"{title} on {_shape(run)}") as step, closing(steps_of(run)) as steps:
        for number, position, loss in steps:
            text = f"step {number}, position {position:,}, {loss:.2f} bits per byte"
            step.note(text, milestone=number % CHECKPOINT_EVERY == 0)
            if number == kill_at:
                break  # which kills it
        step.result = f"{'SIGKILL to all of it after' if kill_at else 'to the end of the epoch,'} {text}"


def _shape(run: Run) -> str:
    return f"{run.ranks} processes x {run.workers} worker{'s' * (run.workers > 1)}, batch size {run.batch_size}"


def _compare(console: Console, runs: Sequence[Run], local: mdsx.Dataset) -> Count:
    """Count what was read against what the order predicts."""
    with console.step("4. Compare what was read with what the order predicts"):
        lives = [[read_log(run.log_file(rank)) for rank in range(run.ranks)] for run in runs]
        resumed_at = min(each.start for life in lives[1] for each in life.delivered)
        for life in lives[0]:
            life.end = (0, resumed_at)
        keys = [sample["__key__"] for sample in local]
        counts = excerpt_of(local).shards.index.counts
        order = mdsx.Order(counts, seed=SEED, epoch=0, lanes=LANES, shuffle_block=runs[0].shuffle_block)
        shards, samples = order.locate(np.arange(len(order)))
        predicted = ((np.cumsum(counts) - counts)[shards] + samples).tolist()  # the sample at each position
        return count([*lives[0], *lives[1]], [[keys[place] for place in predicted]])
