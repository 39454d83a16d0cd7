"""The order of eviction."""

from __future__ import annotations

import numpy as np
import pytest

from mdsx.storage.cache.eviction import Needs, ShardNames, ShardNeeds, candidates, replaces
from mdsx.storage.cache.files import Cached

NOW = 1_000_000.0


def hash_of(name: str) -> str:
    return name.encode().hex().ljust(32, "0")


def known(**seconds: float) -> ShardNeeds:
    """Return the needs of the shards with these names."""
    hashes = np.frombuffer(bytes.fromhex("".join(map(hash_of, seconds))), np.uint8).reshape(-1, 16)
    return ShardNeeds(ShardNames(hashes), np.array([*seconds.values()], np.float64))


def file(name: str, needed: float) -> Cached:
    return Cached(f"/cache/{name}", 1, needed)


def shard(dataset: str, name: str, needed: float) -> Cached:
    return file(f"{dataset}/{hash_of(name)}.mdsx", needed)


def leaving(files: list[Cached], needs: Needs) -> list[str]:
    return [candidate.file.path.removeprefix("/cache/") for candidate in candidates(files, NOW, needs)][::-1]


def test_files_of_the_dead_are_evicted_first() -> None:
    part = file(f"a/{hash_of('x')}.mdsx.part", NOW)
    files = [file("a/b.mdsx", NOW - 5), file("a/a.mdsx", NOW + 5), part, file("stray", NOW)]
    expected = [part.path.removeprefix("/cache/"), "a/b.mdsx", "a/a.mdsx", "stray"]
    assert leaving(files, {"a": known(x=0.3)}) == expected


def test_what_a_process_knows_counts_instead_of_what_it_has_noted() -> None:
    x, y = shard("a", "x", NOW + 5), shard("a", "y", NOW + 9)
    ranked = candidates([x, y], NOW, {"a": known(x=40.0, y=30.0)}, lambda file: file == x)
    assert [(candidate.file, candidate.distance) for candidate in ranked] == [(y, 9.0), (x, 40.0)]


def test_a_use_just_now_is_no_need() -> None:
    x = shard("a", "x", NOW)
    assert [candidate.distance for candidate in candidates([x], NOW, {"a": known(x=40.0)})] == [40.0]


def test_only_names_of_shards_are_shards() -> None:
    needs = known(a=1.0, b=2.0, c=0.0)
    names = [hash_of("b"), hash_of("c"), "x", hash_of("a").upper().replace("0", "A"), hash_of("a") + "00", "0" * 32]
    assert needs.of(names) == [2.0, 0.0, None, None, None, None]
    assert needs.of([]) == []
    empty = ShardNeeds(ShardNames(np.zeros((0, 16), np.uint8)), np.zeros(0))
    assert empty.of([hash_of("a")]) == [None]
    assert empty.names.numbers([hash_of("a")]).tolist() == [-1]


@pytest.mark.parametrize(
    ("then", "needed", "own", "expected"),
    [
        (9, 7, False, False),  # a later need than another process's
        (9, 7, True, True),
        (6, 7, False, True),
        (7, 7, False, True),
        (5, 7, True, False),  # a use now
        (5, 4, False, True),
        (5, 5, False, False),  # it is noted already
        (6, 5, False, True),
        (6, 4, False, True),
    ],
)
def test_the_soonest_need_stays(then: float, needed: float, own: bool, expected: bool) -> None:
    assert replaces(then, needed, 5.0, own=own) == expected
