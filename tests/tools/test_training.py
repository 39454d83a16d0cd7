"""The study of training: its statistics, its shuffles, its models; and its control fails when it must."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tools.training.chart import chart
from tools.training.corpus import HELD_OUT, SOURCES, Corpus, cut, text_of
from tools.training.model import share_of_rate, trained
from tools.training.orders import BUFFER, PY1E, costs, default_name, fetches, most_held, name_of, orders
from tools.training.run import CHART, PAGE
from tools.training.setting import BASELINES, BLOCKS, CONTROL, FEWEST_PAIRS, GOAL, NULL, STUDY, Setting, changed
from tools.training.statistics import Difference, difference, narrow, t95, verdicts
from tools.training.study import Pairs, losses_of, text_from

TINY = Setting(sources=8, shards=16, samples=16, length=16, embedding=8, hidden=32, batch=64)
EXACT = dict.fromkeys(BASELINES, 2.0)


@pytest.fixture(scope="module")
def tiny() -> Corpus:
    """Text of sources that share no letter: a model that forgets one is wrong about it."""
    words = [bytes(65 + 8 * source + number * number % 7 for number in range(8192)) for source in range(TINY.sources)]
    return cut(words, TINY)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A study uses one thread for each pair."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class TestStatistics:
    @pytest.mark.parametrize(("freedom", "published"), [(4, 2.132), (9, 1.833), (29, 1.699), (99, 1.660)])
    def test_the_quantiles_are_those_of_published_tables(self, freedom: int, published: float) -> None:
        assert t95(freedom) == pytest.approx(published, abs=0.002)

    def test_a_difference_is_that_worked_by_hand(self) -> None:
        pairs = [EXACT | {"x": 2 * (1 + share)} for share in (0.01, 0.02, 0.03, 0.04, 0.05)]
        found = difference(pairs, "x")
        assert [found.loss, found.mean] == pytest.approx([2.06, 0.03])
        assert found.pairs == 5
        assert found.width == pytest.approx(2.1318 * math.sqrt(0.00025 / 5), rel=0.001)
        assert (found.upper, found.lower) == (found.mean + found.width, found.mean - found.width)

    def test_each_pair_is_compared_with_its_own_exact_shuffles(self) -> None:
        pairs = [
            dict(zip(BASELINES, (1.9, 2.1), strict=True)) | {"x": 2.02},
            dict.fromkeys(BASELINES, 4.0) | {"x": 4.04},
        ]
        assert difference(pairs, "x").mean == pytest.approx(0.01)
        assert difference(pairs, "x").width == pytest.approx(0, abs=1e-9)

    def test_one_pair_has_no_bound(self) -> None:
        assert difference([EXACT | {"x": 2.0}], "x").upper == math.inf

    def test_pairs_are_added_until_all_bounds_but_the_control_are_narrow(self) -> None:
        steady, noisy = EXACT | {"x": 2.5, CONTROL: 2.5}, EXACT | {"x": 2.5, CONTROL: 4.0}
        assert not narrow([])
        assert not narrow([steady] * (FEWEST_PAIRS - 1))
        assert narrow([steady, noisy] * FEWEST_PAIRS)
        assert not narrow([steady, steady | {"x": 2.6}] * FEWEST_PAIRS)

    @pytest.mark.parametrize(
        ("control", "default", "expected"), [(2.1, 2.002, [True, True]), (2.001, 2.01, [False] * 2)]
    )
    def test_the_control_must_lose_and_the_default_must_not(
        self, control: float, default: float, expected: list[bool]
    ) -> None:
        assert GOAL == 0.002
        assert [*verdicts([EXACT | {"x": default, CONTROL: control}] * 2, "x").values()] == expected


class TestShuffles:
    @pytest.mark.parametrize("setting", [TINY, STUDY])
    @pytest.mark.parametrize("pair", [0, 3])
    def test_each_order_has_each_sample_once(self, setting: Setting, pair: int) -> None:
        for name, order in orders(setting, pair).items():
            numbers = order.numbers(0, setting.all_samples)
            assert np.array_equal(np.sort(numbers), np.arange(setting.all_samples)), name

    def test_orders_differ_from_pair_to_pair_and_from_each_other(self) -> None:
        seen = set()
        for pair in range(3):
            for name, order in orders(TINY, pair).items():
                if name != CONTROL:
                    seen.add(order.numbers(0, TINY.all_samples).tobytes())
        assert len(seen) == 3 * (len(orders(TINY, 0)) - 1)

    def test_the_default_is_among_them_and_others_hold_as_much(self) -> None:
        made = orders(STUDY, 0)
        assert STUDY.default == (64, 64)
        assert {name_of(*each) for each in BLOCKS} | {default_name(STUDY), BUFFER, PY1E, NULL, CONTROL} <= set(made)
        for name in (BUFFER, PY1E):
            assert made[name].held <= made[default_name(STUDY)].held, name

    def test_shards_held_are_those_between_first_and_last_use(self) -> None:
        assert most_held(np.array([0, 1, 0, 2, 2, 1])) == 2
        assert most_held(np.array([0, 1, 2, 0, 1, 2])) == 3
        assert most_held(np.array([0, 0, 1, 1, 2, 2])) == 1

    @pytest.mark.parametrize(("cache", "expected"), [(1, 7), (2, 5), (3, 4), (4, 4)])
    def test_fetches_are_those_worked_by_hand(self, cache: int, expected: int) -> None:
        assert fetches(np.array([0, 1, 2, 0, 1, 3, 0]), cache) == expected

    def test_each_shard_is_downloaded_once_with_the_cache_of_the_default(self) -> None:
        found = costs(TINY)
        assert found[default_name(TINY)].fetched == found[CONTROL].fetched == found[BUFFER].fetched == 1
        assert found[BASELINES[0]].held == TINY.all_shards
        assert found[CONTROL].held == 1


class TestSettings:
    def test_single_values_can_be_changed(self) -> None:
        assert changed(STUDY, ["rate=0.004", "batch=256"]) == replace(STUDY, rate=0.004, batch=256)

    @pytest.mark.parametrize("given", ["speed=1", "batch=many", "batch"])
    def test_what_is_no_number_of_the_study_is_refused(self, given: str) -> None:
        with pytest.raises(SystemExit, match=r"is not a number of the study: sources, .*batch, rate"):
            changed(STUDY, [given])


class TestText:
    def test_samples_are_spread_evenly_and_some_are_held_out(self) -> None:
        setting = Setting(sources=2, shards=2, samples=16, length=4)
        texts = [bytes(range(34)) * 4, bytes(range(100, 134)) * 4]  # 34 samples of 4 bytes, one after the other
        found = cut(texts, setting)
        assert (found.training.shape, found.validation.shape) == ((64, 4), (4, 4))
        places = np.frombuffer(b"".join(texts), np.uint8).reshape(68, 4)
        held_out = np.arange(68) % (HELD_OUT + 1) == HELD_OUT
        assert np.array_equal(found.training, places[~held_out])
        assert np.array_equal(found.validation, places[held_out])

    def test_a_source_that_is_too_short_is_refused(self) -> None:
        with pytest.raises(ValueError, match="source 1 has 9 bytes, not 136"):
            cut([bytes(136), bytes(9)], Setting(sources=2, shards=2, samples=16, length=4))

    def test_each_package_is_pinned_and_has_enough_text(self) -> None:
        lines = (PAGE.parent.parent / "constraints.txt").read_text().splitlines()
        pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
        assert set(SOURCES) <= pinned
        assert len(set(SOURCES)) == STUDY.sources
        assert len(text_of("attrs")) > (STUDY.shards * STUDY.samples * (HELD_OUT + 1) // HELD_OUT) * STUDY.length

    def test_a_package_that_is_not_installed_is_named(self) -> None:
        with pytest.raises(SystemExit, match="install no-such-package"):
            text_of("no-such-package")

    def test_text_is_kept_in_a_file(self, tiny: Corpus, tmp_path: Path) -> None:
        file = tmp_path / "text.npz"
        np.savez_compressed(file, training=tiny.training, validation=tiny.validation)
        assert text_from(file, TINY).identity == tiny.identity


class TestModels:
    def test_a_training_is_reproduced_and_depends_on_order_and_weights(self, tiny: Corpus) -> None:
        order = np.arange(TINY.all_samples)[None]
        first = trained(TINY, tiny, order, 0, "cpu")
        assert first == trained(TINY, tiny, order, 0, "cpu")
        assert first != trained(TINY, tiny, order, 1, "cpu")
        assert first != trained(TINY, tiny, order[:, ::-1].copy(), 0, "cpu")

    def test_models_side_by_side_train_as_each_by_itself(self, tiny: Corpus) -> None:
        made = [orders(TINY, 0)[name].numbers(0, TINY.all_samples) for name in (BASELINES[0], CONTROL)]
        alone = [trained(TINY, tiny, order[None], 0, "cpu")[0] for order in made]
        assert trained(TINY, tiny, np.stack(made), 0, "cpu") == pytest.approx(alone, rel=1e-3)

    def test_a_model_learns(self, tiny: Corpus) -> None:
        order = orders(TINY, 0)[BASELINES[0]].numbers(0, TINY.all_samples)[None]
        assert trained(TINY, tiny, order, 0, "cpu")[0] < 0.9 * math.log(256)

    def test_the_learning_rate_rises_and_then_falls_to_0(self) -> None:
        shares = [share_of_rate(step, 100, 0.02) for step in range(100)]
        assert shares[:3] == [0.5, 1.0, 1.0]
        assert shares[2:] == sorted(shares[2:], reverse=True)
        assert shares[-1] == pytest.approx(1 / 98)


class TestStudy:
    @pytest.mark.slow
    def test_the_control_fails(self, tiny: Corpus) -> None:
        found = [losses_of(pair, TINY, tiny, "cpu") for pair in range(FEWEST_PAIRS)]
        control, null = difference(found, CONTROL), difference(found, NULL)
        assert control.lower > max(GOAL, null.upper)
        assert [*verdicts(found, CONTROL).values()] == [True, False]  # a default without a shuffle would fail

    @pytest.mark.slow
    def test_finished_pairs_are_kept_and_added_to(self, tiny: Corpus, tmp_path: Path) -> None:
        file = tmp_path / "pairs.json"
        Pairs(TINY, tiny, "cpu", file).add(0.01, 1)
        kept = Pairs(TINY, tiny, "cpu", file)
        assert kept.found == [losses_of(0, TINY, tiny, "cpu")]
        kept.add(0.0, 1)
        assert len(kept.found) == 1
        kept.add(0.01, 1)
        assert Pairs(TINY, tiny, "cpu", file).found == [losses_of(pair, TINY, tiny, "cpu") for pair in (0, 1)]

    def test_pairs_of_another_text_are_refused(self, tiny: Corpus, tmp_path: Path) -> None:
        file = tmp_path / "pairs.json"
        Pairs(TINY, tiny, "cpu", file).add(0.01, 1)
        other = Corpus(tiny.training[::-1], tiny.validation)
        with pytest.raises(SystemExit, match="pairs of another study: text differs"):
            Pairs(TINY, other, "cpu", file)


class TestPage:
    def test_the_chart_has_each_shuffle_but_the_control(self) -> None:
        names = [name for name in orders(STUDY, 0) if name not in BASELINES]
        drawn = chart({name: Difference(2.0, 0.001, 0.0005, 30) for name in names}, default_name(STUDY))
        assert [name in drawn for name in names] == [name != CONTROL for name in names]
        assert drawn.count("<circle") == len(names) - 1

    def test_the_page_shows_the_chart_and_names_the_command(self) -> None:
        text = PAGE.read_text()
        assert f"pictures/{CHART.name}" in text
        assert "python3 -m tools training --docs" in text
