"""A writer is killed at any instant and resumed: the result equals an uninterrupted run."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mdsx.writer import merge
from tests.conftest import Often
from tests.writer.jobs import (
    Clock,
    Contents,
    DieAt,
    DieBefore,
    DieLast,
    contents,
    instants,
    kill_at,
    killed,
    life,
    start,
    start_job,
    write,
)
from tests.writer.watch import Disk, Watch

COUNT = 660  # samples: some 70 shards, so that there is a journal


@pytest.fixture(scope="module", params=[None, "zstd"])
def compression(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


@pytest.fixture(scope="module")
def undisturbed(compression: str | None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Contents]:
    """Return the files of an undisturbed run of a number of samples."""
    known: dict[int, Contents] = {}

    def run(count: int) -> Contents:
        if count not in known:
            root = tmp_path_factory.mktemp("undisturbed")
            assert write(root, count, compression=compression, resume=False) == 0
            known[count] = contents(root)
        return known[count]

    return run


@pytest.mark.slow_if("compression == 'zstd'")
def test_a_kill_before_any_disk_change_loses_nothing(
    compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path
) -> None:
    """Some at the start, some anywhere, and all near the end, when the index is written and `_mdsx/` removed."""
    changes = 5 * (len(undisturbed(COUNT)) + 3)  # disk changes: open, write, sync, rename, sync the folder
    points = {*range(0, 12, 2), *random.Random(1).sample(range(12, changes - 16), 7), *range(changes - 16, changes)}
    for point in sorted(points):
        root = tmp_path / str(point)
        deaths = killed(start(root, COUNT, hook=DieAt(point), compression=compression))
        assert deaths or point > changes - 10
        write(root, COUNT, compression=compression)
        assert contents(root) == undisturbed(COUNT), f"killed before change {point}"


@pytest.mark.slow_if("compression == 'zstd'")
def test_a_resume_after_a_random_kill_is_exact(
    compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path, often: Often
) -> None:
    """From the first file to the last removal, with `write` and `write_batch`, once or repeatedly."""
    rng, deaths, runs = random.Random(str(compression)), Counter[str](), itertools.count()
    whole = life(partial(write, tmp_path / "whole", COUNT, compression=compression), tmp_path / "clock")
    while deaths.total() < often(8, long=100):
        root = tmp_path / f"{next(runs)}"
        with Watch(Disk(root), undisturbed(COUNT)) as watch:
            for tick in instants(rng, whole, last=30):
                batch = rng.choice((0, 0, 50, 1000))
                clock = Clock(tmp_path / "clock")
                process = start(root, COUNT, hook=clock, batch=batch, compression=compression)
                if kill_at(process, clock, tick, rng.uniform(0, 0.001)):
                    deaths[phase(root, undisturbed(COUNT))] += 1
            write(root, COUNT, compression=compression)
        assert watch.looks > 2
        assert contents(root) == undisturbed(COUNT)
    print(f"killed {dict(deaths)}")
    assert len(deaths) >= often(1, long=5)


PHASES = (
    "before a shard",
    "among the shards",
    "after the journal",
    "after the last shard",
    "after the index",
    "done",
)


def phase(root: Path, undisturbed: Contents) -> str:
    """Return how far a job came."""
    names = contents(root).keys()
    if "index.json" in names:
        return PHASES[4] if "_mdsx" in names else PHASES[5]
    if max(name for name in undisturbed if name.startswith("shard.")) in names:
        return PHASES[3]
    if "_mdsx/journal.00000.json" in names:
        return PHASES[2]
    return PHASES[1] if any(name.startswith("shard.") for name in names) else PHASES[0]


@pytest.mark.slow
def test_a_kill_while_a_finished_job_resumes_leaves_nothing(tmp_path: Path) -> None:
    """The first was killed after its index was durable, so that the second only removes `_mdsx/`."""
    write(tmp_path / "undisturbed", 30)
    for point in itertools.count():
        root = tmp_path / str(point)
        assert killed(start(root, 30, hook=DieBefore("writer.json", "unlink")))
        assert (root / "index.json").exists()
        died = killed(start(root, 30, hook=DieAt(point)))
        write(root, 30)
        assert contents(root) == contents(tmp_path / "undisturbed"), f"killed before change {point}"
        if not died:
            break
    assert point > 5


@pytest.mark.slow_if("compression is None")
def test_killed_parts_and_merges_resume_exactly(compression: str | None, tmp_path: Path, often: Often) -> None:
    """A killed merge leaves no index or a whole one, even if the parts' writers were killed before."""
    rng, deaths, runs, expected = random.Random(compression), Counter[str](), itertools.count(), tmp_path / "expected"
    for number in range(3):
        write_part(expected, number, compression)
    merge(expected)
    whole = contents(expected)
    merging = life(partial(merge, expected, overwrite=True), tmp_path / "clock")
    while min(deaths["writer"], deaths["merge"]) < often(2, long=25):
        root = tmp_path / f"{next(runs)}"
        with Watch(Disk(root), whole):
            writers = [start_job(partial(write_part, root, number, compression)) for number in range(3)]
            time.sleep(rng.uniform(0, 0.3))
            for process in rng.sample(writers, 2):
                process.kill()
            deaths["writer"] += sum([killed(process) for process in writers])
            for number in range(3):
                write_part(root, number, compression)
            clock = Clock(tmp_path / "clock")
            process = start_job(partial(merge, root), hook=clock)
            if kill_at(process, clock, rng.randrange(merging + 1), rng.uniform(0, 0.0005)):
                deaths["merge"] += 1
                assert contents(root).get("index.json") in (None, whole["index.json"])
            merge(root, overwrite=True)
        assert contents(root) == whole
    print(f"killed {dict(deaths)}")


def write_part(root: Path, number: int, compression: str | None) -> None:
    write(root / f"part-{number:05d}", 100 + number, compression=compression)


@pytest.mark.slow_if("compression == 'zstd'")
def test_a_resume_fills_the_short_last_shard(
    compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path
) -> None:
    """A job killed after its last sample was durable, but before the index, may have more samples next time."""
    for count in range(600, 607):  # one of them fills its last shard, the others do not
        root = tmp_path / str(count)
        assert killed(start(root, count, hook=DieBefore("index.json"), compression=compression))
        assert write(root, COUNT, compression=compression) == count
        assert contents(root) == undisturbed(COUNT)


def test_no_short_shard_precedes_later_shards(
    compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path
) -> None:
    suffix = ".mdsx.zst" if compression else ".mdsx"
    assert killed(start(tmp_path, 25, hook=DieBefore("index.json"), compression=compression))
    last = max(path.name for path in tmp_path.glob("shard.*"))
    number = int(last.split(".")[1])
    hook = DieLast(last, f"shard.{number + 1:05d}{suffix}")
    assert killed(start(tmp_path, COUNT, hook=hook, compression=compression))
    assert write(tmp_path, COUNT, compression=compression) == 25
    assert contents(tmp_path) == undisturbed(COUNT)


def test_without_an_index_nothing_is_finished(tmp_path: Path) -> None:
    """A kill before the index appears leaves none; a kill after it leaves a finished dataset and `_mdsx/`."""
    assert killed(start(tmp_path, 30, hook=DieBefore("index.json")))
    assert not (tmp_path / "index.json").exists()
    assert (tmp_path / "_mdsx" / "writer.json").exists()
    write(tmp_path, 30)
    assert (tmp_path / "index.json").exists()
    assert not (tmp_path / "_mdsx").exists()
