"""Mixtures whose proportions are shares of tokens: exact rationals, wherever the sum of the lengths is found."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.datasets import proportions_in, weights_of
from mdsx.stream import in_json

LENGTHS = {"short": [1, 2, 3] * 40, "long": [70, 31, 90, 44], "none": [0] * 5}
SUMS = {name: sum(lengths) for name, lengths in LENGTHS.items()}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each dataset three times: the sum of the lengths is in the index, in the file of lengths, or only in the rows."""
    root, found = tmp_path_factory.mktemp("tokens"), {}
    for name, lengths in LENGTHS.items():
        for where in ("index", "file", "rows"):
            url = found[f"{name} {where}"] = str(root / f"{name} {where}")
            options: dict[str, Any] = {"lengths": ["tokens"]} if where == "index" else {}
            with mdsx.Writer(url, {"tokens": "int32[*]", "id": "int64"}, shard_size=500, **options) as out:
                for number, length in enumerate(lengths):
                    out.write({"tokens": np.zeros(length, np.int32), "id": number})
            if where == "file":
                mdsx.write_lengths(url, "tokens")
    return found


@pytest.mark.parametrize("where", ["index", "file", "rows"])
def test_the_shares_of_samples_are_exact_rationals(urls: dict[str, str], where: str) -> None:
    short, long = (urls[f"{name} {where}"] for name in ("short", "long"))
    mixture = mdsx.Mixture({"short": (short, 0.25), "long": (long, Fraction(2, 3))}, proportions_of="tokens")
    expected = (Fraction(1, 4) * 120 / SUMS["short"], Fraction(2, 3) * 4 / SUMS["long"])
    assert mixture.phases == ((0, expected),)
    assert [component.lengths for component in mixture.components] == [SUMS["short"], SUMS["long"]]
    state = mdsx.Loader(mixture, 4).state_dict()
    assert state["phases"] == [[0, in_json(expected)]]
    assert state["components"][1][2:] == [4, SUMS["long"]]


def test_a_selection_has_the_sum_of_what_it_selects(urls: dict[str, str]) -> None:
    some = mdsx.Dataset(urls["long index"]).select([0, 3])
    mixture = mdsx.Mixture({"short": (urls["short index"], 1), "some": (some, 1)}, proportions_of="tokens")
    assert mixture.phases[0][1][1] == Fraction(2, 70 + 44)


def test_schedules_reweight_and_plans_count_tokens_too(urls: dict[str, str]) -> None:
    two = {"short": urls["short rows"], "long": urls["long rows"]}
    by_schedule = mdsx.Mixture(two, schedule={0: [1, 0], 40: {"short": 1, "long": 3}}, proportions_of="tokens")
    expected = (Fraction(120, SUMS["short"]), Fraction(3 * 4, SUMS["long"]))
    assert by_schedule.phases == ((0, (expected[0], 0)), (40, expected))
    mixture = mdsx.Mixture({name: (url, 1) for name, url in two.items()}, proportions_of="tokens")
    loader = mdsx.Loader(mixture, 4)
    loader.reweight({"long": 3})
    assert loader.state_dict()["phases"] == [[0, in_json(expected)]]
    by_samples = mdsx.Mixture({name: (url, 1) for name, url in two.items()})
    assert weights_of(by_samples, [1, 3], proportions_of="tokens") == expected  # what a plan asks for
    assert proportions_in(mixture, expected) == (1, 3)


def test_a_nested_mixture_keeps_its_shares_of_samples(urls: dict[str, str]) -> None:
    two = {"short": (urls["short rows"], 1), "long": (urls["long rows"], 1)}
    inner = mdsx.Mixture(two, proportions_of="tokens")
    outer = mdsx.Mixture({"in": (inner, 0.5), "none": (urls["none rows"], 0.5)})
    assert outer.proportions == pytest.approx((*(0.5 * each for each in inner.proportions), 0.5))
    assert inner.proportions[0] != 0.5


def test_a_component_without_values_has_no_share(urls: dict[str, str]) -> None:
    components = {"short": (urls["short rows"], 1), "none": (urls["none rows"], 1)}
    with pytest.raises(mdsx.UsageError, match=r"component none has a proportion, but its lengths.*proportion 0"):
        mdsx.Mixture(components, proportions_of="tokens")
    mdsx.Mixture({**components, "none": (urls["none rows"], 0)}, proportions_of="tokens")


def test_what_cannot_be_counted_is_refused(urls: dict[str, str], tmp_path: Path) -> None:
    two = {"short": (urls["short rows"], 1), "long": (urls["long rows"], 1)}
    with pytest.raises(mdsx.UsageError, match="no such column"):
        mdsx.Mixture(two, proportions_of="words")
    with pytest.raises(mdsx.UsageError, match=r"component short.*give each component a proportion"):
        mdsx.Mixture({"short": urls["short rows"]}, proportions_of="tokens")
    with pytest.raises(mdsx.UsageError, match="does not support a nested mixture"):
        mdsx.Mixture({"inner": (mdsx.Mixture(two), 1)}, proportions_of="tokens")
    mixture = mdsx.Mixture(two, proportions_of="tokens")
    with pytest.raises(mdsx.UsageError, match=r"'truncate' cuts some off.*split"):
        mdsx.Loader(mixture, 4, batching=mdsx.Pack(32, length="tokens", oversize="truncate"))
    mdsx.Loader(mixture, 4, batching=mdsx.Pack(32, length="tokens", oversize="split"))
    damaged = tmp_path / "damaged"
    with mdsx.Writer(damaged, {"tokens": "int32[*]"}) as out:
        out.write({"tokens": np.zeros(9, np.int32)})
    (shard,) = (path for path in damaged.iterdir() if path.name.startswith("shard"))
    shard.unlink()
    with pytest.raises(mdsx.MdsxError):  # never an estimate
        mdsx.Mixture({"damaged": (str(damaged), 1)}, proportions_of="tokens")
