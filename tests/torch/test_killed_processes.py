"""Real processes read from S3 through a cache smaller than the dataset. SIGKILL ends them; others resume."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh

import mdsx
from mdsx.storage import open_storage
from tests import fork_server
from tests.foreign.mds import plain
from tests.foreign.tars.tars import write_tar
from tests.torch.conftest import write
from tests.torch.trainer import train
from tools.servers.az import AzureServer
from tools.servers.gs import GoogleServer
from tools.servers.s3 import S3Server

N = 1003
TIMEOUT = 120.0


Job = list[ForkServerProcess]
State = dict[str, Any]


def start(
    url: str | list[str],
    cache: Path,
    out: Path,
    world: int,
    batch: int,
    workers: int,
    state: State | None = None,
    *more: Any,
) -> Job:
    """Start the ranks of a job, each in its own process group with its workers."""
    out.mkdir()
    ranks = [{"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)} for rank in range(world)]
    return [fork_server.start(train, url, cache, out, batch, workers, state, *more, environment=rank) for rank in ranks]


def kill(job: Job) -> None:
    for process in job:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()
        process.join()


def states(out: Path) -> list[State]:
    return [json.loads(path.read_text()) for path in sorted(out.glob("state.?"))]


def killed_at(position: int, out: Path, job: Job) -> State:
    """Kill a job when all its ranks have reached a position, and return the state of the slowest rank.

    In training the ranks stop at the same step.
    """
    deadline = time.monotonic() + TIMEOUT
    try:
        while True:
            found = states(out)
            if len(found) == len(job) and all(state["position"] >= position or state["epoch"] for state in found):
                break
            assert time.monotonic() < deadline, f"no progress: {found}"
            assert all(process.exitcode in (None, 0) for process in job)
            time.sleep(0.01)
    finally:
        kill(job)
    return min(states(out), key=lambda state: (state["epoch"], state["position"]))


def finish(job: Job) -> None:
    """Wait until all ranks of a job have ended well."""
    try:
        for process in job:
            process.join(TIMEOUT)
            assert process.exitcode == 0
    finally:
        kill(job)


def consumed(out: Path, before: int | None = None) -> list[int]:
    """Return the samples of all ranks' steps that began before position `before` (None: all steps)."""
    numbers: list[int] = []
    for path in out.glob("log.?"):
        for line in path.read_text().splitlines():
            step = json.loads(line)
            if before is None or step["position"] < before:
                numbers += step["ids"]
    return numbers


@pytest.mark.slow_if("before[0] == 4")
@pytest.mark.parametrize(
    ("before", "after"),
    [((2, 8, 2), (3, 5, 1)), ((4, 3, 0), (1, 20, 2))],
    ids=lambda job: "{} ranks, batch {}, {} workers".format(*job),
)
def test_killed_job_resumes_on_another_world_size_exactly_once(
    remote_url: str, tmp_path: Path, before: tuple[int, int, int], after: tuple[int, int, int]
) -> None:
    cache = tmp_path / "cache"
    killed = start(remote_url, cache, tmp_path / "first", *before)
    state = killed_at(150, tmp_path / "first", killed)
    assert 0 < state["position"] < N
    finish(start(remote_url, cache, tmp_path / "second", *after, state))
    read = consumed(tmp_path / "first", before=state["position"]) + consumed(tmp_path / "second")
    assert Counter(read) == Counter(range(N))
    assert all(found["epoch"] == 1 for found in states(tmp_path / "second"))


@pytest.mark.slow
def test_a_killed_run_on_three_clouds_resumes_exactly_once(
    s3: S3Server, gs: GoogleServer, az: AzureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its components are on S3, Cloud Storage and Azure; one cache, smaller than each of them, holds their shards."""
    urls = []
    for number, server in enumerate((s3, gs, az)):
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        urls.append(f"{server.make_bucket('three-clouds')}/data")
        write(urls[-1], 300, first=300 * number)
    cache = tmp_path / "cache"
    killed = start(urls, cache, tmp_path / "first", 2, 8, 1)
    state = killed_at(150, tmp_path / "first", killed)
    finish(start(urls, cache, tmp_path / "second", 1, 20, 2, state))
    read = consumed(tmp_path / "first", before=state["position"]) + consumed(tmp_path / "second")
    assert Counter(read) == Counter(range(900))


@pytest.mark.slow
def test_a_killed_run_over_four_formats_resumes_exactly_once(s3: S3Server, tmp_path: Path) -> None:
    """It mixes our shards, MDS shards with and without hashes, Parquet files and indexed tars, which are all on S3. One
    cache, smaller than each of them, holds what is read of them."""
    bucket, folder = s3.make_bucket("four-formats"), tmp_path / "written"
    samples = [{"id": number, "text": f"text of {number}"} for number in range(1500)]
    with mdsx.Writer(f"{bucket}/ours", {"id": "int64", "text": "str"}, shard_size=4096, compression="zstd") as out:
        for sample in samples[:300]:
            out.write(sample)
    for name, first, hashes in (("mds", 300, ["sha1"]), ("plain-mds", 600, [])):
        shards = [samples[begin : begin + 50] for begin in range(first, first + 300, 50)]
        plain.write_dataset(folder / name, {"id": "int", "text": "str"}, shards, hashes)
    (folder / "parquet").mkdir()
    for number, begin in enumerate(range(900, 1200, 150)):
        table = pa.Table.from_pylist(samples[begin : begin + 150])
        pq.write_table(table, folder / "parquet" / f"{number}.parquet", row_group_size=40)
    for begin in range(1200, 1500, 20):
        members = [(f"{each['id']}.{name}", str(each[name]).encode()) for each in samples[begin:][:20] for name in each]
        write_tar(folder / "tars" / f"{begin}.tar", members)
    storage = open_storage(bucket)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        storage.put(str(path.relative_to(folder)), path.read_bytes())
    mdsx.index_parquet(f"{bucket}/parquet")
    mdsx.index_tars(f"{bucket}/tars", columns={"id": "int64", "text": "str"})
    urls, cache = [f"{bucket}/{name}" for name in ("ours", "mds", "plain-mds", "parquet", "tars")], tmp_path / "cache"
    killed = start(urls, cache, tmp_path / "first", 2, 8, 1)
    state = killed_at(200, tmp_path / "first", killed)
    finish(start(urls, cache, tmp_path / "second", 3, 5, 0, state))
    read = consumed(tmp_path / "first", before=state["position"]) + consumed(tmp_path / "second")
    assert Counter(read) == Counter(range(1500))


def train_in_mesh(url: str, cache: Path, out: Path, batch: int) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", f"file://{out}/store", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    del os.environ["WORLD_SIZE"]  # torch.distributed has the ranks
    train(url, cache, out, batch, 0, None, (mesh, ("pp", "tp")))


@pytest.mark.slow
def test_killed_replicas_resume_with_another_replication(tmp_path: Path) -> None:
    """Eight processes in two groups of four, then four in two groups of two."""
    url, cache, first, second = (tmp_path / name for name in ("data", "cache", "first", "second"))
    write(str(url), N, compression="zstd")
    first.mkdir()
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"} for rank in range(8)]
    killed = [fork_server.start(train_in_mesh, str(url), cache, first, 16, environment=rank) for rank in ranks]
    state = killed_at(150, first, killed)
    logs = [(first / f"log.{rank}").read_text().splitlines() for rank in range(8)]
    for one, *others in ((0, 1, 4, 5), (2, 3, 6, 7)):
        for other in others:
            assert all(mine == theirs for mine, theirs in zip(logs[one], logs[other], strict=False))
    finish(start(str(url), cache, second, 4, 5, 0, state, 2))
    before, after = Counter(consumed(first, before=state["position"])), Counter(consumed(second))
    assert set(before.values()) == {4}
    assert set(after.values()) == {2}
    assert sorted([*before, *after]) == list(range(N))
