"""The order of eviction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mdsx.storage.cache.eviction import Needs, ShardNames, ShardNeeds, candidates, may_evict, replaces
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


def test_the_furthest_need_or_use_is_evicted_first() -> None:
    files = [file("a/now", NOW), file("a/long ago", NOW - 50), file("a/soon", NOW + 5), file("a/later", NOW + 900)]
    assert leaving(files, {}) == ["a/later", "a/long ago", "a/soon", "a/now"]


def test_files_of_the_dead_are_evicted_first() -> None:
    part = file(f"a/{hash_of('x')}.mdsx.part", NOW)
    files = [file("a/b.mdsx", NOW - 5), file("a/a.mdsx", NOW + 5), part, file("stray", NOW)]
    expected = [part.path.removeprefix("/cache/"), "a/b.mdsx", "a/a.mdsx", "stray"]
    assert leaving(files, {"a": known(x=0.3)}) == expected


def test_a_sooner_need_in_the_file_counts_for_known_shards() -> None:
    x, y, z = shard("a", "x", NOW + 5), shard("a", "y", NOW - 1), shard("a", "z", NOW + 50)
    needs = {"a": known(x=40.0, y=30.0, z=20.0)}
    assert leaving([x, y, z], needs) == [each.path.removeprefix("/cache/") for each in (y, z, x)]


def test_what_a_process_knows_counts_instead_of_what_it_has_noted() -> None:
    x, y = shard("a", "x", NOW + 5), shard("a", "y", NOW + 9)
    ranked = candidates([x, y], NOW, {"a": known(x=40.0, y=30.0)}, lambda file: file == x)
    assert [(candidate.file, candidate.distance) for candidate in ranked] == [(y, 9.0), (x, 40.0)]


@pytest.mark.parametrize(
    ("needed", "then", "own", "expected"),
    [
        (NOW - 5, NOW, False, True),  # a use
        (NOW - 5, NOW + 5, False, True),  # a need
        (NOW + 9, NOW + 5, False, True),  # a sooner need
        (NOW + 5, NOW + 9, False, False),  # a later one than another process has
        (NOW + 5, NOW + 9, True, True),
        (NOW + 5, NOW, True, False),  # a use replaces no need to come
    ],
)
def test_which_date_a_file_keeps(needed: float, then: float, own: bool, expected: bool) -> None:
    assert replaces(then, needed, NOW, own=own) is expected


def test_needs_take_precedence_over_file_times() -> None:
    x, y, z = shard("a", "x", NOW + 999), shard("a", "y", NOW), shard("a", "z", NOW + 100)
    other = shard("b", "x", NOW - 5)
    files = [x, y, z, other]
    needs = {"a": known(x=4.0, y=6.0)}
    assert leaving(files, needs) == [each.path.removeprefix("/cache/") for each in (z, y, other, x)]
    assert leaving(files, {}) == [each.path.removeprefix("/cache/") for each in (x, z, other, y)]


def test_only_names_of_shards_are_shards() -> None:
    needs = known(a=1.0, b=2.0, c=0.0)
    names = [hash_of("b"), hash_of("c"), "x", hash_of("a").upper().replace("0", "A"), hash_of("a") + "00", "0" * 32]
    assert needs.of(names) == [2.0, 0.0, None, None, None, None]
    assert needs.of([]) == []
    empty = ShardNeeds(ShardNames(np.zeros((0, 16), np.uint8)), np.zeros(0))
    assert empty.of([hash_of("a")]) == [None]


def test_a_prefetch_evicts_only_strictly_later_needs() -> None:
    assert may_evict(11, needed_in=10)
    assert not may_evict(10, needed_in=10)
    assert may_evict(0, needed_in=0)  # needed now: anything may go
    assert may_evict(math.inf, needed_in=10)
