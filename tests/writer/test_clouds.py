"""The writer on servers of Google Cloud Storage and Azure: the same objects as local files, even after kills."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Mapping
from functools import partial
from pathlib import Path

import pytest

from mdsx.errors import MissingError
from mdsx.storage import open_storage
from tests.conftest import Often
from tests.writer.jobs import PART_SIZE, Clock, contents, instants, kill_at, killed, life, start, write
from tests.writer.watch import Watch

COUNT = 60  # some six shards, each uploaded in parts


class Bucket:
    """A bucket or container, seen by a storage of its own."""

    def __init__(self, url: str) -> None:
        self._storage = open_storage(url)

    def names(self) -> Mapping[str, Hashable]:
        return {entry.key: entry.etag for entry in self._storage.list()}

    def read(self, name: str) -> bytes | None:
        try:
            return self._storage.get(name).data
        except MissingError:
            return None


@pytest.mark.slow_if("cloud == 'az_url'")
@pytest.mark.parametrize("cloud", ["gs_url", "az_url"])
def test_a_resume_after_a_random_kill_is_exact(
    cloud: str, request: pytest.FixtureRequest, tmp_path: Path, often: Often
) -> None:
    """During any request, while an observer watches from outside."""
    root: str = request.getfixturevalue(cloud)
    rng, deaths, runs = random.Random(1), 0, itertools.count()
    environment = {PART_SIZE: "400"}
    write(tmp_path / "undisturbed", COUNT)
    expected = contents(tmp_path / "undisturbed")
    whole = life(partial(write, f"{root}/whole", COUNT), tmp_path / "clock", environment)
    while deaths < often(3, long=50):
        bucket = Bucket(url := f"{root}/killed-{next(runs)}")
        with Watch(bucket, expected, pause=0.03) as watch:
            for tick in instants(rng, whole, last=8):
                clock = Clock(tmp_path / "clock")
                process = start(url, COUNT, hook=clock, environment=environment)
                deaths += kill_at(process, clock, tick, rng.uniform(0, 0.005))
            assert not killed(start(url, COUNT, environment=environment))
        assert watch.looks > 2
        assert {name: bucket.read(name) for name in bucket.names()} == expected
