"""What leaves the cache first."""

from __future__ import annotations

from pathlib import Path

from mdsx.storage.cache.policy import Cached, eviction_order, may_evict

NOW = 1_000_000.0


def file(name: str, mtime: float) -> Cached:
    return Cached(Path(name), 1, mtime)


def test_what_is_needed_or_was_used_furthest_from_now_leaves_first() -> None:
    files = [
        file("used now", NOW),
        file("used long ago", NOW - 50),
        file("soon", NOW + 5),
        file("next epoch", NOW + 900),
    ]
    order = [found.path.name for found in eviction_order(files, NOW)]
    assert order == ["next epoch", "used long ago", "soon", "used now"]


def test_what_a_dead_process_left_leaves_before_all_and_ties_go_by_name() -> None:
    files = [file("b", NOW - 5), file("a", NOW + 5), file("x.part", NOW)]
    assert [found.path.name for found in eviction_order(files, NOW)] == ["x.part", "a", "b"]


def test_a_prefetch_takes_only_the_place_of_what_is_needed_strictly_later() -> None:
    assert may_evict(file("a", NOW + 11), NOW, needed_in=10)
    assert not may_evict(file("a", NOW + 10), NOW, needed_in=10)
    assert may_evict(file("a", NOW), NOW, needed_in=0)  # needed now: anything may go
