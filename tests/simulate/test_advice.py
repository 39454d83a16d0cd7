"""The advice: settings fit the job, caches follow the loader's rule, and the smallest good one is chosen."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from mdsx.errors import UsageError
from mdsx.order import DatasetCourse, Order, lane_spread
from mdsx.simulate.advice import ReadingJob, Wanted, advise, lanes_to_try
from mdsx.simulate.orders import Ours
from mdsx.simulate.quality import exact_batches, quality

COUNTS = np.full(3000, 200)
JOB = ReadingJob(nodes=4, ranks=2, batch_size=64, processes=2)
SHARD = 2**20
ADVICE = advise(COUNTS, JOB, shard_bytes=SHARD)


def test_the_chosen_has_the_smallest_cache_of_those_that_are_good_enough() -> None:
    enough = [choice for choice in ADVICE.curve if choice.enough]
    assert ADVICE.chosen.cache_bytes == min(choice.cache_bytes for choice in enough)
    assert all(choice.distinct_share >= 0.9 and choice.repeated <= 0.52 for choice in enough)
    assert f"shuffle_block={ADVICE.chosen.shuffle_block}" in ADVICE.reasons[0]


def test_the_chosen_has_its_quality_in_the_real_order() -> None:
    chosen = ADVICE.chosen
    order = Ours(Order(COUNTS, lanes=chosen.lanes, shuffle_block=chosen.shuffle_block))
    found = quality(order, COUNTS, batch_size=64, sample_bytes=SHARD / 200)
    assert found.distinct == pytest.approx(chosen.distinct, rel=0.05)
    assert found.repeated == pytest.approx(chosen.repeated, abs=0.05)


def test_a_part_of_a_large_dataset_gives_the_same_advice() -> None:
    large = advise(np.tile(COUNTS, 20), JOB, shard_bytes=SHARD)
    assert large.tried_shards < 60_000
    whole = {(choice.lanes, choice.shuffle_block): choice for choice in ADVICE.curve}
    for choice in large.curve:
        same = whole.get((choice.lanes, choice.shuffle_block))
        if same is not None and choice.shuffle_block < 30_000:
            assert choice.distinct == pytest.approx(same.distinct, rel=0.1, abs=1)
            own = -(-choice.lanes // JOB.nodes)  # a block begins and ends within a shard, or does not
            assert choice.in_use_bytes == pytest.approx(same.in_use_bytes, rel=0.3, abs=(own + 3) * SHARD)


def test_no_cache_is_below_what_the_loader_warns_of() -> None:
    """See `order.small_cache`."""
    for choice in ADVICE.curve:
        course = DatasetCourse(Order(COUNTS, lanes=choice.lanes, shuffle_block=choice.shuffle_block))
        active = course.active_shards(choice.lanes // JOB.nodes)
        assert choice.in_use_bytes >= active * SHARD
        assert choice.cache_bytes == choice.in_use_bytes + choice.ahead_bytes


@pytest.mark.parametrize("job", [JOB, ReadingJob(1, 8, 2048, 8), ReadingJob(64, 8, 4096, 8), ReadingJob(3, 2, 66, 6)])
def test_lanes_keep_nodes_apart(job: ReadingJob) -> None:
    lanes = lanes_to_try(job)
    assert lanes == sorted(set(lanes))
    for number in lanes:
        assert lane_spread(job.batch_size, lanes=number, world_size=job.world_size) == max(1, job.world_size / number)
        assert number % job.nodes == 0


def test_a_batch_that_ranks_cannot_share_has_lanes_too() -> None:
    assert lanes_to_try(ReadingJob(3, 2, 64, 6)) == [2]
    assert (
        advise(COUNTS, ReadingJob(3, 2, 64, 6), shard_bytes=SHARD).reasons[-1].startswith("2 lanes cannot be divided")
    )


def test_what_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.simulate.advice.lanes_to_try", lambda job: [4])
    found = advise(np.full(4, 50), replace(JOB, batch_size=8), shard_bytes=SHARD, wanted=Wanted(1, 0.001))
    assert not found.chosen.enough
    assert "No setting has the wanted quality" in found.reasons[1]


def test_more_is_wanted_more_is_kept() -> None:
    sizes = [
        advise(COUNTS, JOB, shard_bytes=SHARD, wanted=Wanted(distinct=share)).chosen.cache_bytes
        for share in (0.3, 0.9, 0.98)
    ]
    assert sizes == sorted(sizes)


def test_one_lane_and_many_have_an_exact_batch_as_the_limit() -> None:
    distinct, _ = exact_batches(COUNTS, 64)
    assert ADVICE.exact_distinct == distinct
    assert max(choice.distinct for choice in ADVICE.curve) <= 64


def test_advice_is_plain_json() -> None:
    found = json.loads(json.dumps(asdict(ADVICE)))
    assert found["chosen"] in found["curve"]


def test_bad_wishes_and_empty_datasets_are_refused() -> None:
    with pytest.raises(UsageError, match="distinct"):
        Wanted(distinct=1.5)
    with pytest.raises(UsageError, match="empty"):
        advise(np.zeros(3, np.int64), JOB, shard_bytes=SHARD)
