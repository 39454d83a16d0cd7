"""Real processes read batches of one shape from S3. SIGKILL ends them; other ranks, with other workers, resume."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

import mdsx
from tests import fork_server
from tests.order.reference_buckets import bucket_of
from tests.torch.buckets_trainer import SIZES, train
from tests.torch.test_killed_processes import kill
from tests.waiting import wait_until

SAMPLES = 1003


def size_of(number: int) -> tuple[int, int]:
    return 3 + number * 37 % 17, 2 + number * number % 13


@pytest.fixture
def url(s3_url: str) -> str:
    with mdsx.Writer(s3_url, {"id": "int64", "height": "uint16", "width": "uint16", "text": "str"}) as out:
        for number in range(SAMPLES):
            height, width = size_of(number)
            out.write({"id": number, "height": height, "width": width, "text": f"text of {number}"})
    return s3_url


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_ranks_resume_on_others_and_see_each_sample_once(url: str, tmp_path: Path) -> None:
    state: dict[str, Any] | None = None
    steps: dict[int, list[int]] = defaultdict(list)
    buckets: dict[int, Any] = {}
    for life, (world, workers, micro, stops) in enumerate([(2, 0, None, 9), (3, 2, 3, 11), (1, 1, None, 0)]):
        out = tmp_path / f"life-{life}"
        out.mkdir()
        ranks = [{"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)} for rank in range(world)]
        job = [
            fork_server.start(train, url, tmp_path / "cache", out, workers, micro, stops, state, environment=rank)
            for rank in ranks
        ]
        try:
            wait_until(partial(has_stopped, out, job, stops), seconds=120)
        finally:
            kill(job)
        states = [json.loads((out / f"state.{rank}").read_text()) for rank in range(world)]
        assert all(each == states[0] for each in states)
        state = states[0]
        done = state["consumed"]["steps"]
        for rank in range(world):
            for line in (out / f"log.{rank}").read_text().splitlines():
                found = json.loads(line)
                if found["step"] < done:  # else its step was begun, and is taken again
                    steps[found["step"]] += found["ids"]
                    assert buckets.setdefault(found["step"], found["bucket"]) == found["bucket"]
    assert sorted(number for numbers in steps.values() for number in numbers) == list(range(SAMPLES))
    assert sorted(steps) == list(range(len(steps)))
    for step, numbers in steps.items():
        found = {bucket_of(size_of(number), SIZES) for number in numbers}
        assert [SIZES[bucket or 0] for bucket in found] == [tuple(buckets[step])]


def has_stopped(out: Path, job: list[ForkServerProcess], stops: int) -> bool:
    """Return whether all ranks have saved the state after `stops` batches, or have ended."""
    assert all(process.exitcode in (None, 0) for process in job)
    ranks = range(len(job))
    if not stops:
        return all((out / f"done.{rank}").exists() for rank in ranks)
    logs = [out / f"log.{rank}" for rank in ranks]
    return all(log.exists() and log.read_text().count("\n") == stops for log in logs)
