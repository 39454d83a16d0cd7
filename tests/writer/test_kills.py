"""A writer that is killed, at whatever instant, and goes on: the result is what an undisturbed run writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.writer.jobs import Contents, DieAt, DieBefore, DieLast, contents, kill_after, killed, start, write
from tests.writer.watch import Watch

COUNT = 660  # samples: some 70 shards, so that there is a journal


@pytest.fixture(scope="module", params=[None, "zstd"])
def compression(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


@pytest.fixture(scope="module")
def undisturbed(compression: str | None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Contents]:
    """What an undisturbed run of so many samples leaves."""
    known: dict[int, Contents] = {}

    def run(count: int) -> Contents:
        if count not in known:
            root = tmp_path_factory.mktemp("undisturbed")
            assert write(root, count, compression=compression, resume=False) == 0
            known[count] = contents(root)
        return known[count]

    return run


def test_killed_before_any_change_of_the_disk(
    compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path
) -> None:
    """Some at the start, some anywhere, and all about the end, where the index is written and `_mdsx/` removed."""
    changes = 5 * (len(undisturbed(COUNT)) + 3)  # of the disk: open, write, sync, rename, sync the folder
    points = {*range(0, 12, 2), *random.Random(1).sample(range(12, changes - 16), 7), *range(changes - 16, changes)}
    for point in sorted(points):
        root = tmp_path / str(point)
        deaths = killed(start(root, COUNT, hook=DieAt(point), compression=compression))
        assert deaths or point > changes - 10
        write(root, COUNT, compression=compression)
        assert contents(root) == undisturbed(COUNT), f"killed before change {point}"


@pytest.mark.parametrize("seed", range(6))
def test_killed_again_and_again_at_any_instant(
    seed: int, compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path
) -> None:
    rng, root, deaths = random.Random(seed), tmp_path / "dataset", 0
    with Watch(root):
        while True:
            process = start(root, COUNT, compression=compression)
            kill_after(process, root, shards=rng.randrange(50))
            if not killed(process):
                break
            deaths += 1
    assert deaths
    assert contents(root) == undisturbed(COUNT)


def test_the_short_last_shard_of_a_job_is_gone_on_with(
    compression: str | None, undisturbed: Callable[[int], Contents], tmp_path: Path
) -> None:
    """A job that was killed when all its samples were durable, but not the index, may have more of them next time."""
    for count in range(600, 607):  # one of them fills its last shard, the others do not
        root = tmp_path / str(count)
        assert killed(start(root, count, hook=DieBefore("index.json"), compression=compression))
        assert write(root, COUNT, compression=compression) == count
        assert contents(root) == undisturbed(COUNT)


def test_a_shard_that_is_gone_on_with_never_stands_short_before_later_ones(
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
    """Death before the index appears leaves none; death after it leaves a finished dataset, and `_mdsx/`."""
    assert killed(start(tmp_path, 30, hook=DieBefore("index.json")))
    assert not (tmp_path / "index.json").exists()
    assert (tmp_path / "_mdsx" / "writer.json").exists()
    write(tmp_path, 30)
    assert (tmp_path / "index.json").exists()
    assert not (tmp_path / "_mdsx").exists()
