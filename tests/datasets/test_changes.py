"""dtypes= and fill=: columns that are read as other types of numbers, and with a value in place of null."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

COLUMNS = {
    "tokens": "uint16[*]",
    "id": "int32",
    "score": "float32?",
    "box": "int16[2]?",
    "flag": "bool?",
    "half": "bfloat16[2]",
    "text": "str?",
}
CHANGES: dict[str, Any] = {
    "dtypes": {"tokens": "int64", "id": torch.int16, "half": np.float64, "flag": "uint8"},
    "fill": {"score": math.nan, "box": (-1, "has_box"), "flag": 7},
}
SAMPLES: list[dict[str, Any]] = [
    {
        "tokens": np.arange(number % 5) + 60_000,
        "id": number,
        "score": None if number % 3 == 0 else number / 2,
        "box": None if number % 4 == 0 else [number, -number],
        "flag": [None, True, False][number % 3],
        "half": [0.5, number],
        "text": None if number % 2 else str(number),
    }
    for number in range(40)
]


def write(url: Path, columns: dict[str, str] = COLUMNS, samples: list[dict[str, Any]] = SAMPLES) -> str:
    with mdsx.Writer(url, columns, shard_size=500, lengths=["tokens"]) as out:
        for each in samples:
            out.write(each)
    return str(url)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("changes") / "dataset")


def as_read(sample: dict[str, Any]) -> list[Any]:
    """Return what CHANGES make of a written sample."""
    box, score = sample["box"], sample["score"]
    return [
        sample["tokens"].tolist(),
        sample["id"],
        "nan" if score is None else score,
        [-1, -1] if box is None else box,
        7 if sample["flag"] is None else int(sample["flag"]),
        sample["half"],
        sample["text"],
        box is not None,
    ]


def plain(sample: dict[str, Any]) -> list[Any]:
    values = [value.tolist() if hasattr(value, "tolist") else value for value in sample.values()]
    return ["nan" if isinstance(value, float) and math.isnan(value) else value for value in values]


def test_samples_are_read_as_other_types(url: str) -> None:
    changed = mdsx.Dataset(url, **CHANGES)
    assert changed.columns == {
        "tokens": "int64[*]",
        "id": "int16",
        "score": "float32",
        "box": "int16[2]",
        "flag": "uint8",
        "half": "float64[2]",
        "text": "str?",
        "has_box": "bool",
    }
    expected = [as_read(sample) for sample in SAMPLES]
    assert [plain(changed[number]) for number in range(40)] == expected
    assert list(map(plain, changed)) == expected
    assert changed[3]["tokens"].dtype == np.int64
    assert changed[3]["id"].dtype == np.int16
    assert changed.take([0, 4])["box"].tolist() == [[-1, -1], [-1, -1]]
    assert changed.fingerprint == mdsx.Dataset(url).fingerprint


def batches(url: str, way: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the batches of an epoch in the order of writing."""
    if way == "numpy":
        return iter(mdsx.Loader(url, 8, shuffle=False, **options))
    if way == "dataset":
        return iter(mdsx.Loader(mdsx.Dataset(url, **options), 8, shuffle=False))
    if way == "mixture":
        return iter(mdsx.Loader(mdsx.Mixture([url], **options), 8, shuffle=False))
    data = StreamingDataset(url, shuffle=False, transform=dict if way == "transform" else None, **options)
    return iter(StreamingDataLoader(data, 8, num_workers=2 * (way == "workers")))


@pytest.mark.parametrize("way", ["numpy", "dataset", "mixture", "torch", "workers", "transform"])
def test_batches_have_arrays_of_the_types_that_were_asked_for(url: str, way: str) -> None:
    expected = [as_read(sample) for sample in SAMPLES]
    for number, batch in enumerate(batches(url, way, CHANGES)):
        wanted = expected[8 * number : 8 * number + 8]
        for place, name in enumerate([*COLUMNS, "has_box"]):
            values = [value.tolist() if hasattr(value, "tolist") else value for value in batch[name]]
            found = ["nan" if isinstance(value, float) and math.isnan(value) else value for value in values]
            assert found == [sample[place] for sample in wanted]
            assert isinstance(batch[name], list) == (name in ("tokens", "text"))
        assert str(batch["score"].dtype).endswith("float32")
        assert all(str(each.dtype).endswith("int64") for each in batch["tokens"])


def test_packed_rows_have_the_types_of_the_dataset(url: str) -> None:
    chosen = ["tokens", "id", "score"]
    options: dict[str, Any] = {name: {k: v for k, v in each.items() if k in chosen} for name, each in CHANGES.items()}
    for transform in (None, dict):
        data = StreamingDataset(url, columns=chosen, transform=transform, **options)
        for batch in StreamingDataLoader(data, 2, batching=mdsx.Pack(16, length="tokens")):
            assert batch["tokens"].dtype == torch.int64
            assert batch["tokens"][batch["segment_ids"] > 0].min() >= 60_000
    by_pack = mdsx.Pack(16, length="tokens", dtypes={"tokens": "int32"})
    batch = next(iter(StreamingDataLoader(StreamingDataset(url, columns=chosen, **options), 2, batching=by_pack)))
    assert batch["tokens"].dtype == torch.int32


def test_datasets_of_different_types_mix(url: str, tmp_path: Path) -> None:
    others = [{**each, "score": float(each["id"]), "id": each["id"] + 1000} for each in SAMPLES]
    other = write(tmp_path / "other", {**COLUMNS, "tokens": "int32[*]", "score": "float64"}, others)
    with pytest.raises(mdsx.UsageError, match=r"columns of components .* differ.*dtypes="):
        mdsx.Mixture([url, other])
    changes: dict[str, Any] = {"dtypes": {"tokens": "int64", "score": "float32"}, "fill": {"score": -1}}
    mixture = mdsx.Mixture([url, other], **changes)
    apart = mdsx.Mixture([mdsx.Dataset(each, **changes) for each in (url, other)])
    for each in (mixture, apart):
        found = {}
        for batch in mdsx.Loader(each, 8, seed=3):
            assert batch["score"].dtype == np.float32
            for number, score, tokens in zip(batch["id"], batch["score"], batch["tokens"], strict=True):
                found[int(number)] = score, tokens.tolist()
        expected = {sample["id"]: (-1 if sample["score"] is None else sample["score"]) for sample in SAMPLES}
        expected |= {sample["id"]: sample["score"] for sample in others}
        assert {number: score for number, (score, _) in found.items()} == expected
        for sample in [*SAMPLES, *others]:
            assert found[sample["id"]][1] == sample["tokens"].tolist()
    data = StreamingDataset(mixture, columns=["tokens"])
    packed = list(StreamingDataLoader(data, 2, batching=mdsx.Pack(16, length="tokens"), drop_last=False))
    assert sum(int((batch["segment_ids"] > 0).sum()) for batch in packed) == 2 * sum(number % 5 for number in range(40))


def test_a_selection_keeps_its_changes(url: str) -> None:
    changed = mdsx.Dataset(url, **CHANGES)
    assert [plain(sample) for sample in changed.select([1, 4])] == [as_read(SAMPLES[1]), as_read(SAMPLES[4])]
    assert plain(changed.select_columns({"b": "box"})[4]) == [[-1, -1]]
    joined = mdsx.zip(changed.select_columns(["id", "box", "has_box"]), mdsx.Dataset(url, columns=["text"]))
    assert plain(joined[4]) == [4, [-1, -1], False, "4"]


def test_a_mask_is_a_column_like_others(url: str) -> None:
    changed = mdsx.Dataset(url, **CHANGES)
    there = [number for number in range(40) if number % 4]
    for batched in (False, True):
        chosen = changed.filter(lambda has: has, input_columns="has_box", batched=batched)
        assert chosen.take(range(len(chosen)))["id"].tolist() == there
    half, _ = changed.split(0.5, 0.5, by="has_box", stratify=True)
    assert half.take(range(len(half)))["has_box"].tolist().count(False) == 5
    alone = changed.select_columns({"has": "has_box", "again": "has_box"})
    assert alone.columns == {"has": "bool", "again": "bool"}
    assert alone.take([3, 4], as_arrow=True).to_pydict() == {"has": [True, False], "again": [True, False]}
    assert alone.to_batches().read_all()["has"].to_pylist() == [number % 4 > 0 for number in range(40)]
    data = StreamingDataset(changed, columns=["tokens", "has_box"], dtypes={"has_box": "float32"}, shuffle=False)
    for batching in (mdsx.Pad(), mdsx.MaxTokens(64, length="tokens", window=1)):
        rows = None if isinstance(batching, mdsx.MaxTokens) else 8
        for batch in StreamingDataLoader(data, rows, batching=batching, drop_last=False):
            assert batch["has_box"].dtype == torch.float32
            assert batch["has_box"].shape == (len(batch["tokens"]),)


def test_a_mask_is_made_once_for_each_column(url: str) -> None:
    changed = mdsx.Dataset(url, **CHANGES)
    again = StreamingDataset(changed, fill={"box": (3, "has_box"), "score": (0, "has_score")})
    assert list(again.columns)[-2:] == ["has_box", "has_score"]
    with pytest.raises(mdsx.UsageError, match="there is a column 'has_box' already"):
        StreamingDataset(changed, fill={"score": (0, "has_box")})
    with pytest.raises(mdsx.UsageError, match="fill, column 'has_box': a mask has no nulls"):
        StreamingDataset(changed, fill={"has_box": 0})


def test_a_mask_mixes_with_a_stored_column(url: str, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "stored", {"has_box": "bool", "id": "int16"}) as out:
        out.write_batch({"has_box": [True, False], "id": [1001, 1002]})
    changed = mdsx.Dataset(url, **CHANGES).select_columns(["has_box", "id"])
    found: dict[int, bool] = {}
    for batch in mdsx.Loader(mdsx.Mixture([changed, tmp_path / "stored"]), 8, drop_last=False):
        found |= dict(zip(batch["id"].tolist(), batch["has_box"].tolist(), strict=True))
    assert found == {number: number % 4 > 0 for number in range(40)} | {1001: True, 1002: False}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20), st.sampled_from(["int8", "uint32", "int64"])
)
def test_integers_fit_or_the_error_names_the_sample(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], target: str
) -> None:
    url = tmp_path_factory.mktemp("numbers") / "dataset"
    with mdsx.Writer(url, {"n": "int32", "v": "int32[*]"}) as out:
        for number in numbers:
            out.write({"n": number, "v": [0, number]})
    limits = np.iinfo(target)
    outside = [place for place, number in enumerate(numbers) if not limits.min <= number <= limits.max]
    for name in ("n", "v"):
        changed = mdsx.Dataset(url, columns=[name], dtypes={name: target})
        if outside:
            expected = (
                f"shard.00000.mdsx, sample {outside[0]}, column '{name}': .*{target}, found {numbers[outside[0]]}"
            )
            with pytest.raises(mdsx.UsageError, match=expected):
                changed.take(range(len(numbers)))
        else:
            found = changed.take(range(len(numbers)))[name]
            assert [value.tolist() for value in found] == [each if name == "n" else [0, each] for each in numbers]
            assert all(value.dtype == target for value in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtypes": {"token": "int64"}}, r"dtypes, column 'token': there is no such column \(expected tokens, id"),
        ({"dtypes": {"tokens": "long"}}, "dtypes, column 'tokens': unknown type of numbers"),
        ({"dtypes": {"score": "int64"}}, "dtypes, column 'score': .* found float32 to int64"),
        ({"dtypes": {"text": "int64"}}, r"dtypes, column 'text': only numbers .* have a dtype \(found str\?\)"),
        ({"dtypes": ["tokens"]}, "dtypes must be a mapping from columns"),
        ({"fill": {"text": 0}}, r"fill, column 'text': only numbers,.* \(found str\?\); replace None in a transform"),
        ({"fill": {"tokens": 0}}, "fill, column 'tokens': only numbers"),
        ({"fill": {"score": "nan"}}, "fill, column 'score': the fill value is invalid"),
        ({"fill": {"box": math.nan}}, "fill of column 'box', type 'int16': the fill does not fit"),
        ({"fill": {"box": (0, "id")}}, "there is a column 'id' already; give the mask another name"),
        ({"fill": {"box": (0, "m"), "score": (0, "m")}}, "there is a column 'm' already; give the mask another name"),
        ({"fill": {"box": (0, "")}}, "column name '' has 0 bytes"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_why(url: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Dataset(url, **changes)
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Loader(url, 8, **changes)
