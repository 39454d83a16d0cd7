"""A simulated run: exact where that is quick, else a stretch of it that agrees with the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.errors import UsageError
from mdsx.order import Shuffle
from mdsx.simulate import Cluster, Loading, Prices, invented, labels_of, opened, run, simulate
from mdsx.stream import MaxTokens, Pack

CLUSTER = Cluster(2, 2, 10**9, 50e6, 0.01)
LOADING = Loading(16, 0, False, 0.005)
PRICES = Prices(0.4, 0.09, "EUR")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of 6,000 samples of different lengths."""
    folder = tmp_path_factory.mktemp("simulated") / "data"
    with mdsx.Writer(folder, {"tokens": "int32[*]", "label": "int64"}, shard_size=2**19) as out:
        for number in range(6000):
            out.write({"tokens": np.arange(200 + number % 500, dtype=np.int32), "label": number % 7})
    return str(folder)


def test_an_exact_run_reads_each_shard_of_each_node_once(url: str) -> None:
    source = opened([url], shuffle=Shuffle(4))
    report = simulate(source, CLUSTER, LOADING, PRICES, epochs=2)
    whole = report.whole
    assert whole.exact
    assert whole.error == 0
    assert [(each.node, each.epoch) for each in report.epochs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first = [each.traffic for each in report.epochs if each.epoch == 0]
    assert whole.bytes == sum(each.bytes for each in first)
    assert whole.minimum == sum(each.minimum for each in first)
    assert 1 <= whole.duplication < 1.2, "a first batch by range, and each shard once"
    assert whole.ahead == sum(each.ahead for each in first)
    steps = -(-6000 // (16 * 4))
    assert {each.steps for each in report.epochs} == {steps}
    assert all(series.downloaded[-1] >= first[series.node].bytes for series in report.series)
    assert report.cost.egress == pytest.approx(whole.bytes / 1e9 * 0.09)
    assert report.cost.requests == pytest.approx(whole.requests / 1000 * 0.4)


def test_what_the_nodes_need_is_what_they_read(url: str) -> None:
    """The needs come from the order alone, the reads from the loader's code."""
    source = opened([url], shuffle=Shuffle(4))
    simulation = run.Simulation(source, CLUSTER, LOADING)
    for node in simulation.run():
        needs = simulation.needs[node.number]
        assert set(node.fetched.whole) >= set(needs.shards.tolist())
        assert len(node.fetched.whole) == len(set(node.fetched.whole))
        assert needs.at_a_time <= node.cache.peak


@pytest.mark.slow
def test_a_stretch_of_some_nodes_agrees_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    source = invented(150_000, 1000, 2**17, shuffle=Shuffle(8, 20_000))
    cluster, loading = Cluster(4, 2, 10**9, 30e6, 0.01), Loading(32, 0, False, 0.02)
    exact = simulate(source, cluster, loading, PRICES).whole
    monkeypatch.setattr(run, "_EXACT", 0.2)
    report = simulate(source, cluster, loading, PRICES)
    assert exact.exact
    assert not report.whole.exact
    assert 0 < report.whole.share < 1
    assert report.whole.bytes == pytest.approx(exact.bytes, rel=0.1)
    assert report.whole.minimum == exact.minimum
    assert report.whole.seconds == pytest.approx(exact.seconds, rel=0.1)
    assert any("were simulated" in note for note in report.notes)


def test_a_mixture_and_groups_are_simulated(url: str) -> None:
    mixture = opened([url, url], proportions=[0.5, 0.5])
    assert simulate(mixture, CLUSTER, LOADING, PRICES).quality == {}
    for batching in (Pack(2048, length="tokens"), MaxTokens(8192, length="tokens")):
        report = simulate(opened([url], batching=batching), CLUSTER, replace(LOADING, batch_size=1), PRICES)
        assert report.whole.exact
        assert report.epochs[0].steps == report.settings["steps"] > 1


def test_nodes_that_remain_keep_their_caches(url: str) -> None:
    source = opened([url], shuffle=Shuffle(4))
    after = simulate(source, CLUSTER, LOADING, PRICES, resume=replace(CLUSTER, nodes=1)).resume
    assert after is not None
    assert after.world_size == 2
    assert 0 < after.bytes < after.cold_bytes


def test_the_labels_of_a_column_are_counted(url: str) -> None:
    source = opened([url])
    labels = labels_of(source, "label")
    assert labels.values.tolist() == [number % 7 for number in range(6000)]
    report = simulate(source, CLUSTER, LOADING, PRICES, labels=labels)
    assert {each["distinct_of"] for each in report.quality["methods"]} == {"label"}
    with pytest.raises(UsageError, match="one dataset"):
        labels_of(opened([url, url]), "label")


def test_a_null_is_a_value_that_is_counted_and_arrays_are_refused(url: str, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"kind": "str?", "box": "float32[3]"}) as out:
        for number in range(6):
            out.write({"kind": None if number % 3 else "cat", "box": np.zeros(3, np.float32)})
    source = opened([str(tmp_path / "data")])
    assert labels_of(source, "kind").values.tolist() == [0, 1, 1, 0, 1, 1]
    for data, column in ((source, "box"), (opened([url]), "tokens")):
        with pytest.raises(UsageError, match=f"the values of column '{column}' cannot be counted"):
            labels_of(data, column)


def test_batches_of_one_shape_are_refused() -> None:
    batching = mdsx.Buckets(by="label", sizes=range(3), global_batch_size=8)
    with pytest.raises(UsageError, match="one shape cannot be simulated yet"):
        opened(["nowhere"], batching=batching)


def test_shards_beyond_the_format_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.simulate.simulation.MAX_SHARDS", 100)
    report = simulate(invented(10_000, 1000, 10_000), CLUSTER, LOADING, PRICES)
    assert any("at most 100 shards, but this one would have 1,000" in note for note in report.notes)
    assert any("at least 100 kB" in note for note in report.notes)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda: Cluster(0, 1, 1, None, 0), "nodes must be at least 1"),
        (lambda: Cluster(1, 1, 1, 0.0, 0), "above 0"),
        (lambda: Loading(0, 0, False, 0), "batch_size"),
        (lambda: Loading(1, 0, False, -1), "seconds"),
        (lambda: invented(0, 1, 1), "at least 1"),
        (lambda: invented(10, 100, 99), "must hold a sample"),
    ],
)
def test_settings_are_checked(change: object, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        change()  # type: ignore[operator]


def test_a_cache_that_holds_no_shard_is_refused() -> None:
    with pytest.raises(UsageError, match="largest shard"):
        simulate(invented(1000, 1000, 10**5), replace(CLUSTER, cache=10**4), LOADING, PRICES)


def test_it_finds_the_busiest_rank_of_packed_rows(url: str) -> None:
    def found(micro_batch: int | None = None, **options: Any) -> Mapping[str, float]:
        source = opened([url], shuffle=Shuffle(4), batching=Pack(2048, length="tokens", **options))
        loading = replace(LOADING, batch_size=4, micro_batch=micro_batch)
        return simulate(source, CLUSTER, loading, PRICES).busiest

    assert found() == {}
    steps = found(balance=(100, 1))
    assert 1 < steps["step"] < steps["step_without"]
    both = found(2, balance=(100, 1))
    assert {name: both[name] for name in steps} == steps
    assert 1 < both["micro_batch"] < both["micro_batch_without"]
    loader = mdsx.Loader(
        url,
        4,
        batching=Pack(2048, length="tokens", balance=(100, 1)),
        seed=0,
        shuffle=Shuffle(4),
        rank=3,
        world_size=4,
        ranks_per_node=2,
    )
    plan = loader.plan()
    assert plan.steps < 100  # so that the simulation looks at all of them
    assert plan.busiest is not None
    assert plan.unbalanced is not None
    assert (plan.busiest.step, plan.unbalanced.step) == (steps["step"], steps["step_without"])
    plain = mdsx.Loader(url, 4, batching=Pack(2048, length="tokens"))
    assert (plain.plan().busiest, plain.plan().unbalanced) == (None, None)
