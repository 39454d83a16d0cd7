"""What decides which samples come is the same on all ranks, or is found to differ."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed

import mdsx
from tests.conftest import Often
from tests.decoding.files import jpeg, photo
from tests.fork_server import call_all
from tools.fault_proxy import Proxy, status, trickle

COLUMNS = {"id": "int64", "tokens": "uint16[*]", "text": "str", "n": "uint16"}
RANKS = 3
SAMPLES = 5000  # some windows of one lane
LAYOUTS: list[Callable[[], mdsx.Pack | mdsx.MaxTokens] | None] = [
    None,
    lambda: mdsx.Pack(300, length="tokens"),
    lambda: mdsx.Pack(600, length="n"),
    lambda: mdsx.MaxTokens(900, length="text"),
]


def write(url: str, first: int, stop: int, *, lengths: bool = False) -> None:
    sizes = [number * 7 % 19 for number in range(first, stop)]
    with mdsx.Writer(url, COLUMNS, shard_size=60_000, lengths=["tokens", "n"] if lengths else []) as out:
        out.write_batch(
            {
                "id": range(first, stop),
                "tokens": [np.zeros(size, np.uint16) for size in sizes],
                "text": ["x" * size for size in sizes],
                "n": sizes,
            }
        )


class Job:
    """A dataset that changes, and whose optional files fail, while the ranks of a job open it one after the other."""

    def __init__(self, url: str, proxy: Proxy, seed: int) -> None:
        self.url, self._proxy, self._chance = url, proxy, random.Random(seed)
        self._samples, self._parts = SAMPLES, 0
        write(url, 0, SAMPLES, lengths=self._chance.random() < 0.5)
        self._write_lengths()

    def change(self) -> None:
        """Do something that must change nothing for a rank that opens a snapshot, and does it before another one."""
        self._proxy.clear()
        self._chance.choice([self._append, self._append, self._write_lengths, self._repair])()
        for key in ("*_lengths/*", "*/index-*.json"):
            fault = self._chance.choice(
                [
                    status(403, "AccessDenied"),
                    status(404, "NoSuchKey"),
                    status(500, "InternalError"),
                    trickle(0.002, piece=4096),
                ]
            )
            self._proxy.add(fault, key=key, times=self._chance.randint(0, 2), method="GET")

    def _append(self) -> None:
        name, self._parts = f"part-{self._parts:05d}", self._parts + 1
        write(f"{self.url}/{name}", self._samples, self._samples + 9, lengths=self._chance.random() < 0.5)
        self._samples += 9
        mdsx.append(self.url, name)

    def _write_lengths(self) -> None:
        for column in self._chance.sample(["tokens", "n", "text"], 2):
            mdsx.write_lengths(self.url, column)

    def _repair(self) -> None:
        mdsx.repair(self.url)


def planned(loader: mdsx.Loader) -> list[list[int]]:
    """Return the samples of each of the rank's steps."""
    return [[int(each) for row in batch["id"] for each in np.ravel(row)] for batch in loader]


def test_ranks_plan_the_same_whatever_fails_or_changes(s3_url: str, proxy: Proxy, tmp_path: Path, often: Often) -> None:
    for seed in range(often(4, long=400)):
        proxy.clear()
        job, chance = Job(f"{s3_url}/{seed}", proxy, seed), random.Random(seed)
        layout, snapshot = LAYOUTS[seed % 4], mdsx.Dataset(job.url).fingerprint if chance.random() < 0.7 else None
        loaders = []
        for rank in range(RANKS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of files of lengths that fit another state
                job.change()
            try:
                data = mdsx.Dataset(job.url, snapshot=snapshot, cache=tmp_path / f"{seed}-{rank}")
            except (mdsx.ForbiddenError, mdsx.MissingError):  # an error is right too
                proxy.clear()
                data = mdsx.Dataset(job.url, snapshot=snapshot, cache=tmp_path / f"{seed}-{rank}")
            batching = None if layout is None else layout()
            batch_size = None if isinstance(batching, mdsx.MaxTokens) else 4 if batching else 100
            loaders.append(
                mdsx.Loader(
                    data,
                    batch_size,
                    batching=batching,
                    seed=seed,
                    shuffle=mdsx.Shuffle(lanes=1),
                    rank=rank,
                    world_size=RANKS,
                    drop_last=False,
                )
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plans = [planned(loader) for loader in loaders]
        hashes = {loader.stats().order_hash for loader in loaders}
        states = {json.dumps(loader.state_dict()) for loader in loaders}
        assert (len(hashes) == 1) == (len(states) == 1)
        if snapshot is not None:
            assert len(hashes) == 1
        if len(hashes) == 1:
            total = sum(map(len, (step for plan in plans for step in plan)))
            assert len({len(plan) for plan in plans}) == 1
            assert Counter(each for plan in plans for step in plan for each in step) == Counter(range(total))


def test_the_hash_is_logged_and_changes_with_all_that_decides_the_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(str(tmp_path / "data"), 0, 100)
    pack = mdsx.Pack(64, length="tokens")

    def hashed(**changes: Any) -> str:
        given: dict[str, Any] = {"batch_size": 2, "seed": 7, "rank": 1, "world_size": 2, "batching": pack, **changes}
        loader = mdsx.Loader(tmp_path / "data", given.pop("batch_size"), **given)
        assert not loader.stats().order_hash
        next(iter(loader))
        return loader.stats().order_hash

    with caplog.at_level(logging.INFO, "mdsx"):
        first = hashed()
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert f"rank 1 of 2: order hash {first}" in caplog.text
    assert first == hashed(rank=0) == hashed(seed=np.int64(7), world_size=np.int64(2))
    others: list[dict[str, Any]] = [
        {"batch_size": 3},
        {"seed": 8},
        {"world_size": 3},
        {"batching": mdsx.Pack(64, length="tokens", window=9)},
        {"batching": mdsx.Pack(63, length="tokens")},
        {"batching": mdsx.Pack(64, length="n")},
        {"batching": None},
        {"batching": mdsx.Pack(64, length="tokens", balance=(1, 1), balance_over="job")},
        {"batching": mdsx.Pack(64, length="tokens", balance=(1, 2), balance_over="job")},
        {"batching": mdsx.Pack(64, length="tokens", balance=(1, 1)), "ranks_per_node": 1},
        {"batching": mdsx.Pack(64, length="tokens", balance=(1, 1)), "ranks_per_node": 2},
        {"epoch_samples": 99},
        {"shuffle": mdsx.Shuffle(lanes=3)},
        {"drop_last": False},
    ]
    assert len({first, *(hashed(**changes) for changes in others)}) == 1 + len(others)


def joins(url: str, port: int, rank: int, snapshot: str | None) -> str:
    """Be a rank of a job whose second rank opens the dataset after an append. Return the hash, or the error."""
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", address, rank=rank, world_size=2)
    try:
        if rank:
            torch.distributed.barrier()
        loaders = [mdsx.Loader(mdsx.Dataset(url, snapshot=snapshot), 2, seed=7) for _ in range(2)]
        if rank == 0:
            write(f"{url}/part-00001", 100, 110)
            mdsx.append(url, "part-00001")
            torch.distributed.barrier()
        try:
            for loader in loaders:
                next(iter(loader))
            return loaders[0].stats().order_hash
        except mdsx.UsageError as error:
            return str(error)
        finally:
            torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def resumes(url: str, port: int, rank: int, layout: mdsx.Pack | None) -> str:
    """Be a rank of a job whose first rank looks at a batch, and whose second rank then loads another state."""
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        loader = mdsx.Loader(url, 2, seed=7, batching=layout)
        states = [loader.state_dict()]
        batches = iter(loader)
        for _ in range(2 - rank):
            next(batches)
            states.append(loader.state_dict())
        loader.load_state_dict(states[1])
        next(iter(loader))
        torch.distributed.barrier()
        loader.load_state_dict(states[1 - rank])
        try:
            next(iter(loader))
            return "agreed"
        except mdsx.UsageError as error:
            return str(error)
        finally:
            torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def decodes(url: str, port: int, rank: int, decode: mdsx.Decoder) -> str:
    """Be a rank of a job that decodes."""
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        next(iter(mdsx.Loader(url, 2, decode={"image": decode})))
        return "agreed"
    except mdsx.UsageError as error:
        return str(error)
    finally:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("layout", [None, mdsx.Pack(64, length="tokens", window=64)])
def test_ranks_that_load_other_states_get_an_error(tmp_path: Path, layout: mdsx.Pack | None) -> None:
    url, port = str(tmp_path / "data"), free_port()
    write(url, 0, 100)
    found = call_all(resumes, [(url, port, rank, layout) for rank in range(2)])
    assert "agreed" in found
    assert "begin: the ranks do not agree" in "".join(found)
    assert "load the same state on all ranks" in "".join(found)


@pytest.mark.parametrize("pinned", [True, False])
def test_ranks_that_opened_other_states_get_an_error(tmp_path: Path, pinned: bool) -> None:
    url = str(tmp_path / "data")
    write(url, 0, 100)
    snapshot = mdsx.Dataset(url).fingerprint if pinned else None
    port = free_port()
    found = call_all(joins, [(url, port, rank, snapshot) for rank in range(2)])
    if pinned:
        assert found[0] == found[1]
        assert len(found[0]) == 16
    else:
        assert "the ranks do not agree" in "".join(found)
        assert "snapshot=" in "".join(found)
        assert sum(len(each) == 16 for each in found) == 1


def test_a_refused_snapshot_is_read_from_an_index_with_its_fingerprint_alone(s3_url: str, proxy: Proxy) -> None:
    url = f"{s3_url}/data"
    write(url, 0, 100)
    first = mdsx.Dataset(url).fingerprint
    rule = proxy.add(status(403, "AccessDenied"), key="*/index-*.json")
    assert len(mdsx.Dataset(url, snapshot=first)) == 100
    assert rule.hits == 1  # it is final: neither a retry nor another way
    proxy.clear()
    write(f"{url}/part-00001", 100, 110)
    mdsx.append(url, "part-00001")
    proxy.add(status(403, "AccessDenied"), key="*/index-*.json")
    with pytest.raises(mdsx.ForbiddenError):
        mdsx.Dataset(url, snapshot=first)


def test_a_refused_file_of_lengths_is_asked_for_once(s3_url: str, proxy: Proxy, tmp_path: Path) -> None:
    for code, name in ((403, "AccessDenied"), (404, "NoSuchKey")):
        url = f"{s3_url}/{code}"
        write(url, 0, 100, lengths=True)
        proxy.clear()
        rule = proxy.add(status(code, name), key="*_lengths/*")
        pack = mdsx.Pack(64, length="tokens")
        loader = mdsx.Loader(mdsx.Dataset(url, cache=tmp_path / name), 4, seed=7, batching=pack, drop_last=False)
        assert len([*loader]) == loader.plan(0).steps
        assert rule.hits == 1


@pytest.mark.parametrize("backend", ["turbo", "pillow"])
def test_ranks_that_decode_otherwise_get_an_error(tmp_path: Path, backend: Any) -> None:
    url, port = str(tmp_path / "data"), free_port()
    with mdsx.Writer(url, {"image": "jpeg"}) as out:
        for number in range(8):
            out.write({"image": jpeg(photo(40, 60, seed=number))})
    given = [mdsx.Image(backend="turbo"), mdsx.Image(backend=backend)]
    found = call_all(decodes, [(url, port, rank, given[rank]) for rank in range(2)])
    if backend == "turbo":
        assert found == ["agreed", "agreed"]
    else:
        assert "agreed" in found
        assert "decode: the ranks decode differently" in "".join(found)
        assert "give all ranks the same decode=" in "".join(found)
