"""What leaves the cache first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mdsx.storage.cache.policy import Cached, Foresights, candidates, distance, may_evict

NOW = 1_000_000.0


class Known:
    """A run at 10 positions a second, which knows some shards' needs."""

    def __init__(self, needs: dict[str, int], position: int = 0) -> None:
        self.positions, self.position = needs, position

    def needs(self, raw_hashes: Sequence[str]) -> list[int | None]:
        return [self.positions.get(raw_hash) for raw_hash in raw_hashes]

    def seconds_to(self, position: int) -> float:
        return max(position - self.position, 0) / 10


def file(name: str, needed: float) -> Cached:
    return Cached(f"/cache/{name}", 1, needed)


def leaving(files: list[Cached], foresights: Foresights) -> list[str]:
    return [candidate.file.path.removeprefix("/cache/") for candidate in candidates(files, NOW, foresights)][::-1]


def test_what_is_needed_or_was_used_furthest_from_now_leaves_first() -> None:
    files = [file("a/now", NOW), file("a/long ago", NOW - 50), file("a/soon", NOW + 5), file("a/later", NOW + 900)]
    assert leaving(files, {}) == ["a/later", "a/long ago", "a/soon", "a/now"]


def test_what_a_dead_process_left_leaves_before_all_and_ties_go_by_name() -> None:
    files = [file("a/b.mdsx", NOW - 5), file("a/a.mdsx", NOW + 5), file("a/x.mdsx.part", NOW), file("stray", NOW)]
    assert leaving(files, {"a": Known({"x": 3})}) == ["a/x.mdsx.part", "a/b.mdsx", "a/a.mdsx", "stray"]


def test_what_the_process_foresees_counts_and_not_the_time_of_the_file() -> None:
    files = [file("a/x.mdsx", NOW + 999), file("a/y.mdsx", NOW), file("a/z.mdsx", NOW + 100), file("b/x.mdsx", NOW - 5)]
    foresights = {"a": Known({"x": 40, "y": 60})}
    assert leaving(files, foresights) == ["a/z.mdsx", "a/y.mdsx", "b/x.mdsx", "a/x.mdsx"]  # 100, 6, 5 and 4 seconds
    assert leaving(files, {}) == ["a/x.mdsx", "a/z.mdsx", "b/x.mdsx", "a/y.mdsx"]


def test_how_far_a_need_is_follows_the_run() -> None:
    known = Known({"x": 40})
    (candidate,) = candidates([file("a/x.mdsx", NOW)], NOW, {"a": known})
    assert candidate.distance == 4
    known.position = 30
    assert distance(candidate, NOW + 77, {"a": known}) == 1
    assert distance(candidate, NOW + 77, {}) == 77  # nobody foresees any more


def test_a_prefetch_takes_only_the_place_of_what_is_needed_strictly_later() -> None:
    assert may_evict(11, needed_in=10)
    assert not may_evict(10, needed_in=10)
    assert may_evict(0, needed_in=0)  # needed now: anything may go
    assert may_evict(math.inf, needed_in=10)
