"""The writer on a real server of Azure Blob Storage: the same objects as local files, even after kills."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Mapping
from functools import partial
from pathlib import Path

from mdsx.errors import MissingError
from mdsx.storage import open_storage
from tests.conftest import Often
from tests.writer.jobs import PART_SIZE, Clock, contents, instants, kill_at, killed, life, start, write
from tests.writer.watch import Watch

COUNT = 60  # some six shards, each uploaded in blocks


class Container:
    """A container, seen by a storage of its own."""

    def __init__(self, url: str) -> None:
        self._storage = open_storage(url)

    def names(self) -> Mapping[str, Hashable]:
        return {entry.key: entry.etag for entry in self._storage.list()}

    def read(self, name: str) -> bytes | None:
        try:
            return self._storage.get(name).data
        except MissingError:
            return None


def test_a_resume_after_a_random_kill_is_exact(az_url: str, tmp_path: Path, often: Often) -> None:
    """During any request, while an observer watches from outside."""
    rng, deaths, runs = random.Random(1), 0, itertools.count()
    environment = {PART_SIZE: "400"}
    write(tmp_path / "undisturbed", COUNT)
    expected = contents(tmp_path / "undisturbed")
    whole = life(partial(write, f"{az_url}/whole", COUNT), tmp_path / "clock", environment)
    while deaths < often(3, long=50):
        container = Container(url := f"{az_url}/killed-{next(runs)}")
        with Watch(container, expected, pause=0.03) as watch:
            for tick in instants(rng, whole, last=8):
                clock = Clock(tmp_path / "clock")
                process = start(url, COUNT, hook=clock, environment=environment)
                deaths += kill_at(process, clock, tick, rng.uniform(0, 0.005))
            assert not killed(start(url, COUNT, environment=environment))
        assert watch.looks > 2
        assert {name: container.read(name) for name in container.names()} == expected
