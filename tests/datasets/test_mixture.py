"""The construction of mixtures: amounts, names, nesting, agreement of columns, and mistakes."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import mdsx
from mdsx import Component, Mixture, UsageError
from mdsx.datasets import weights_of
from mdsx.format import ColumnType, values_decoder


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Datasets of 10, 20 and 40 samples, and one with other names for its columns."""
    root = tmp_path_factory.mktemp("mixture")
    for name, size in {"a": 10, "b": 20, "c": 40, "empty": 0}.items():
        with mdsx.Writer(root / name, {"text": "str", "id": "int64"}) as out:
            for number in range(size):
                out.write({"text": f"{name}{number}", "id": number})
    with mdsx.Writer(root / "other", {"id": "int64", "content": "str", "lang": "str?"}) as out:
        out.write({"id": 1, "content": "other", "lang": None})
    return {name: str(root / name) for name in ("a", "b", "c", "empty", "other")}


def test_proportions_are_relative(urls: dict[str, str]) -> None:
    mixture = Mixture([(urls["a"], 3), (urls["b"], Fraction(1))])
    assert mixture.proportions == (0.75, 0.25)
    assert mixture.epoch_samples == 30
    assert mixture.names == ("0", "1")
    assert mixture.sizes == (10, 20)
    assert Mixture([(urls["a"], 3), (urls["b"], 1)], epoch_samples=7).epoch_samples == 7


def test_repeat_and_samples_are_amounts(urls: dict[str, str]) -> None:
    mixture = Mixture({"a": Component(urls["a"], repeat=2.5), "b": Component(urls["b"], samples=5), "c": urls["c"]})
    assert mixture.epoch_samples == 25 + 5 + 40
    assert mixture.proportions == (25 / 70, 5 / 70, 40 / 70)


def test_nested_mixtures_are_flattened_with_multiplied_weights(urls: dict[str, str]) -> None:
    inner = Mixture({"x": (urls["a"], 1), "y": (urls["b"], 3)})
    outer = Mixture({"in": (inner, 0.8), "c": (urls["c"], 0.2)})
    assert outer.names == ("in/x", "in/y", "c")
    assert outer.proportions == pytest.approx((0.2, 0.6, 0.2))
    exact = Fraction(0.8)
    assert outer.phases == ((0, (exact / 4, exact * 3 / 4, Fraction(0.2))),)
    whole = Mixture([Mixture([urls["a"], urls["b"]]), urls["c"]])
    assert not whole.weighted
    assert whole.epoch_samples == 70
    twice = Mixture([Component(Mixture([urls["a"], urls["b"]]), repeat=2), urls["c"]])
    assert twice.epoch_samples == 100
    assert twice.proportions == pytest.approx((0.2, 0.4, 0.4))
    scheduled = Mixture({"x": urls["a"], "y": urls["b"]}, schedule={0: {"x": 0.9, "y": 0.1}})
    assert Mixture([(scheduled, 0.5), (urls["c"], 0.5)]).proportions == pytest.approx((0.45, 0.05, 0.5))


def test_columns_are_chosen_and_renamed_until_they_agree(urls: dict[str, str]) -> None:
    mixture = Mixture([urls["a"], Component(urls["other"], columns={"text": "content", "id": "id"})])
    assert dict(mixture.columns) == {"text": "str", "id": "int64"}
    only = Mixture([urls["a"], urls["other"]], columns=["id"])
    assert dict(only.columns) == {"id": "int64"}


def test_columns_that_differ_are_an_error_that_shows_both(urls: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="columns of components a and o differ") as caught:
        Mixture({"a": urls["a"], "o": urls["other"]})
    for shown in ("'text': 'str'", "'content': 'str'", "'lang': 'str?'"):
        assert shown in str(caught.value)


def test_a_selection_is_a_component_of_its_own(urls: dict[str, str]) -> None:
    data = mdsx.Dataset(urls["c"])
    mixture = Mixture([data.select(0, 5), data.select_share(0.0, 0.5), data])
    assert mixture.sizes[0] == 5
    assert mixture.sizes[2] == 40
    assert mixture.fingerprint != Mixture([data, data, data]).fingerprint


def test_a_mixture_can_be_pickled(urls: dict[str, str]) -> None:
    mixture = Mixture([urls["a"], urls["b"]], schedule={0: [1, 2], 50: [2, 1]}, run=8)
    again = pickle.loads(pickle.dumps(mixture))
    assert again.phases == mixture.phases == ((0, (1, 2)), (50, (2, 1)))
    assert again.run == 8
    assert again.fingerprint == mixture.fingerprint


def test_a_schedule_has_the_proportions(urls: dict[str, str]) -> None:
    plain = Mixture({"a": (urls["a"], 3), "b": (urls["b"], 1)})
    schedule: dict[int, Any] = {50: {"a": 0, "b": 2}, 0: {"b": 1, "a": 3}, 10**15: [1, 1]}
    mixture = Mixture({"a": urls["a"], "b": urls["b"]}, schedule=schedule)
    assert mixture.phases == ((0, (3, 1)), (50, (0, 2)), (10**15, (1, 1)))
    assert mixture.proportions == (0.75, 0.25)
    assert mixture.weighted
    assert mixture.epoch_samples == 30
    assert Mixture({"a": urls["a"], "b": urls["b"]}, schedule={0: [3, 1]}).fingerprint == plain.fingerprint
    doubled = {position: [2 * weight for weight in weights] for position, weights in mixture.phases}
    assert Mixture([urls["a"], urls["b"]], schedule=doubled).fingerprint == mixture.fingerprint
    later = {**schedule, 51: schedule[50]}
    del later[50]
    others = [{0: [3, 1]}, later, {**schedule, 50: [1, 2]}, {**schedule, 60: [0, 2]}]
    found = {Mixture({"a": urls["a"], "b": urls["b"]}, schedule=other).fingerprint for other in [schedule, *others]}
    assert len(found) == 5


def test_an_epoch_of_a_mixture_in_runs_has_whole_runs(urls: dict[str, str]) -> None:
    assert Mixture([(urls["b"], 1), (urls["c"], 1)], run=16).epoch_samples == 48
    assert Mixture([Component(urls["a"], repeat=1), urls["b"]], run=8).epoch_samples == 24
    assert Mixture([(urls["a"], 1), (urls["b"], 1)], run=64, epoch_samples=640).epoch_samples == 640
    assert Mixture([urls["a"], urls["b"]]).run is None


def described(url: str, **options: Any) -> Mixture:
    return Mixture.from_json({"components": {"a": {"url": url, "proportion": 1}}, **options})


MISTAKES: list[tuple[str, Any, str]] = [
    ("nothing in it", lambda u: Mixture([]), "needs at least one component"),
    ("some without", lambda u: Mixture([(u["a"], 1), u["b"]]), "either all components have a proportion"),
    (
        "two amounts",
        lambda u: Mixture([Component(u["a"], 1, repeat=2)]),
        "at most one of proportion, repeat and samples",
    ),
    ("negative", lambda u: Mixture([(u["a"], -1)]), "negative"),
    ("text", lambda u: Mixture([(u["a"], "1")]), "must be a number"),
    ("all zero", lambda u: Mixture([(u["a"], 0), (u["b"], 0)]), "above 0"),
    ("empty", lambda u: Mixture([(u["a"], 1), (u["empty"], 1)]), "a proportion but no samples"),
    ("samples", lambda u: Mixture([Component(u["a"], samples=cast(int, 1.5))]), "samples of 0 must be an integer"),
    ("not a dataset", lambda u: Mixture([7]), "a component of a mixture is"),
    ("epoch", lambda u: Mixture([u["a"]], epoch_samples=0), "epoch_samples"),
    ("column", lambda u: Mixture([Component(u["a"], columns=["nothing"])]), "no such column"),
    ("columns", lambda u: Mixture([Component(u["a"], columns="id")]), "a list of names"),
    ("weights", lambda u: weights_of(Mixture([u["a"]]), [1]), "without proportions"),
    ("short", lambda u: Mixture([u["a"]], schedule={0: [1, 2]}), "number for each component"),
    ("names", lambda u: Mixture({"a": u["a"]}, schedule={0: {"b": 1}}), "no such component"),
    ("which", lambda u: Mixture([u["a"]], schedule={0: [1], 9: {"b": 1}}), r"^schedule\[9\]: .*no such component"),
    ("pairs", lambda u: Mixture([u["a"]], schedule=cast(Any, [(0, [1])])), "schedule must be a mapping"),
    ("zero", lambda u: Mixture([u["a"]], schedule={0: [1], 9: [0]}), "above 0"),
    ("no start", lambda u: Mixture([u["a"]], schedule={1: [1]}), "at position 0"),
    ("nothing", lambda u: Mixture([u["a"]], schedule={}), "at position 0"),
    ("place", lambda u: Mixture([u["a"]], schedule={0: [1], -1: [1]}), "position of the schedule"),
    ("float", lambda u: Mixture([u["a"]], schedule={0: [1], cast(int, 1e6): [1]}), "position of the schedule"),
    ("both", lambda u: Mixture([(u["a"], 1)], schedule={0: [1]}), "weight of its own"),
    ("repeat", lambda u: Mixture([Component(u["a"], repeat=2)], schedule={0: [1]}), "weight of its own"),
    ("mixture", lambda u: Mixture([Mixture([u["a"]])], schedule={0: [1]}), "cannot contain another mixture"),
    ("nested", lambda u: Mixture([Mixture([u["a"]], schedule={0: [1], 9: [2]})]), "cannot have a schedule or run"),
    ("nested run", lambda u: Mixture([Mixture([(u["a"], 1)], run=8)]), "cannot have a schedule or run"),
    ("run", lambda u: Mixture([(u["a"], 1)], run=0), "run must be an integer"),
    ("no weights", lambda u: Mixture([u["a"]], run=8), "requires proportions"),
    ("long run", lambda u: Mixture([(u["a"], 1)], run=16), "epoch_samples=16"),
    ("part", lambda u: Mixture([(u["a"], 1)], run=8, epoch_samples=12), "epoch_samples=16"),
    ("JSON position", lambda u: described(u["a"], schedule={0: [1]}), "position of the schedule"),
    (
        "JSON positions",
        lambda u: Mixture.from_json({"components": {"a": {"url": u["a"]}}, "schedule": {"0": [1], "00": [1]}}),
        "the same position.*'0', '00'",
    ),
    ("JSON component", lambda u: described(u["a"], component_column=["text"]), "component_column must be the name"),
    ("JSON values", lambda u: described(u["a"], proportions_of=["text"]), "proportions_of must be the name"),
    ("JSON columns", lambda u: described(u["a"], columns=7), "columns must be a list of names, or a mapping"),
    ("JSON column", lambda u: described(u["a"], columns=[["text"]]), "the name of a column must be text"),
    ("JSON renamed", lambda u: described(u["a"], columns={"a": ["text"]}), "the name of a column must be text"),
    ("JSON start", lambda u: Mixture.from_json({"components": {"a": {"url": u["a"], "start": "1"}}}), "start must be"),
    ("JSON stop", lambda u: Mixture.from_json({"components": {"a": {"url": u["a"], "stop": 1.0}}}), "stop must be"),
    ("excluded", lambda u: described(u["empty"], exclude={"a": [0]}), "no number: the component has no samples"),
    ("exclude", lambda u: described(u["a"], exclude={"a": torch.zeros(1, device="meta")}), "has the numbers"),
]


@pytest.mark.parametrize(("make", "says"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_mistakes_raise_usage_error(urls: dict[str, str], make: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make(urls)


def test_a_missing_component_is_named(tmp_path: Path) -> None:
    with pytest.raises(mdsx.MissingError, match="nowhere"):
        Mixture([str(tmp_path / "nowhere")])


def test_selections_have_their_samples(urls: dict[str, str]) -> None:
    data = mdsx.Dataset(urls["c"])
    assert [sample["id"] for sample in data.select(10, 13)] == [10, 11, 12]
    train, valid = data.select_share(0.0, 0.8, seed=3), data.select_share(0.8, 1.0, seed=3)
    ids = [sample["id"] for sample in train], [sample["id"] for sample in valid]
    assert sorted([*ids[0], *ids[1]]) == list(range(40))
    assert len(train) == len(ids[0]) > len(valid) > 0
    assert train[-1]["id"] == ids[0][-1]
    assert train[[2, 0]] == [train[2], train[0]]
    assert len({data.fingerprint, train.fingerprint, valid.fingerprint}) == 3
    assert len(train.select(0, 5).select_share(0.0, 0.5)) <= 5
    with pytest.raises(UsageError, match="stop"):
        data.select(0, 41)


@pytest.mark.parametrize("cut", [(0.0, 1), (0, 1.0), (0, 0.5), (0.0, 1.0)])
def test_a_selection_by_number_refuses_a_float(urls: dict[str, str], cut: tuple[Any, Any]) -> None:
    with pytest.raises(UsageError, match=r"sample numbers.*select_share\("):
        mdsx.Dataset(urls["c"]).select(*cut)


def test_a_share_is_the_same_written_as_an_integer_or_a_float(urls: dict[str, str]) -> None:
    data = mdsx.Dataset(urls["c"])
    assert data.select_share(0, 1).fingerprint == data.select_share(0.0, 1.0).fingerprint
    assert len(data.select_share(0, 1)) == len(data)


def test_a_projection_decodes_only_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mdsx.Writer(tmp_path / "d", {"good": "int64", "long": "json", "more": "str"}) as out:
        out.write({"good": 1, "long": [0] * 1000, "more": "text"})
    decoded = []

    def watched(type: ColumnType, name: str, **options: bool) -> Any:
        decoded.append(type.base)
        return values_decoder(type, name, **options)

    monkeypatch.setattr("mdsx.shards.gather.values_decoder", watched)
    data = mdsx.Dataset(tmp_path / "d", columns={"renamed": "more", "good": "good"})
    assert dict(data.columns) == {"renamed": "str", "good": "int64"}
    assert data[0] == {"renamed": "text", "good": 1}
    assert list(data[0]) == ["renamed", "good"]
    assert set(decoded) == {"str"}
    assert data.fingerprint == mdsx.Dataset(tmp_path / "d").fingerprint  # the same samples in the same order
    assert list(data.select_columns(["good"])[0]) == ["good"]
    with pytest.raises(UsageError, match="no such column"):
        data.select_columns(["more"])
