"""mdsx.Pad, and columns that have lengths of their own in Pack and MaxTokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

COLUMNS = {"chosen": "uint16[*]", "rejected": "uint16[*]", "id": "int64", "score": "float32[2]", "text": "str"}
N = 203
PAIR = ["chosen", "rejected"]


def sample(number: int) -> dict[str, Any]:
    return {
        "chosen": np.full(number * 7 % 23, number),
        "rejected": np.full(number * 5 % 17, number),
        "id": number,
        "score": [number, -number],
        "text": f"text {number}",
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = tmp_path_factory.mktemp("pairs") / "dataset"
    with mdsx.Writer(url, COLUMNS, shard_size=4000, lengths=PAIR) as out:
        for number in range(N):
            out.write(sample(number))
    return str(url)


def check_padded(batch: dict[str, Any], *, pad: int = 0, multiple: int = 1, most: int = 99) -> None:
    """Check a batch with one sample in each row against what was written."""
    numbers = batch["id"].tolist()
    for name in PAIR:
        values = [sample(number)[name].tolist()[:most] for number in numbers]
        longest = max(map(len, values), default=0)
        width = -(-longest // multiple) * multiple
        assert batch["lengths"][name].tolist() == [len(value) for value in values]
        assert batch["lengths"][name].dtype == torch.int64
        assert batch[name].shape == (len(numbers), width)
        assert batch[name].tolist() == [value + [pad] * (width - len(value)) for value in values]
    assert batch["score"].tolist() == [[number, -number] for number in numbers]
    assert batch["score"].shape == (len(numbers), 2)
    assert batch["text"] == [f"text {number}" for number in numbers]


@pytest.mark.parametrize("transform", [None, dict], ids=["columns", "transform"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_without_batching_padded(url: str, workers: int, transform: Any) -> None:
    data = StreamingDataset(url, seed=5, transform=transform, columns=[*PAIR, "id", "text"])
    plain = list(StreamingDataLoader(data, 16, drop_last=False))
    batching = mdsx.Pad(pad_value=9, pad_to_multiple_of=4, dtypes={"chosen": "int64"})
    padded = list(StreamingDataLoader(data, 16, batching=batching, drop_last=False, num_workers=workers))
    assert len(plain) == len(padded) == 13
    for before, after in zip(plain, padded, strict=True):
        assert torch.equal(before["id"], after["id"])
        assert after["chosen"].dtype == torch.int64
        assert after["rejected"].dtype == torch.uint16
        scores = torch.stack([after["id"], -after["id"]], 1)
        check_padded({**after, "score": scores}, pad=9, multiple=4)


def test_the_capacity_truncates_or_refuses_longer_values(url: str) -> None:
    cut = mdsx.Pad(12, oversize="truncate", pad_to_multiple_of=12)
    for batch in mdsx.Loader(url, 16, batching=cut):
        assert batch["chosen"].shape == batch["rejected"].shape == (16, 12)
        as_tensors = {key: torch.as_tensor(batch[key]) for key in (*PAIR, "id", "score")}
        lengths = {name: torch.as_tensor(each) for name, each in batch["lengths"].items()}
        check_padded({**batch, **as_tensors, "lengths": lengths}, multiple=12, most=12)
    with pytest.raises(mdsx.UsageError, match=r"sample \d+, column 'chosen': .*longer than the capacity.*at most 12"):
        list(mdsx.Loader(url, 16, batching=mdsx.Pad(12)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [mdsx.Pad, mdsx.MaxTokens, mdsx.Pack])
def test_what_a_transform_makes_has_pad_values_and_types(url: str, kind: type[Any], workers: int) -> None:
    def tokenized(each: dict[str, Any]) -> dict[str, Any]:
        tokens = each["chosen"].astype(np.int64)
        return {"input_ids": tokens, "labels": tokens}

    arguments: dict[str, Any] = {"pad_value": {"labels": -100}, "dtypes": {"input_ids": "int32"}}
    if kind is mdsx.MaxTokens:
        arguments["pad_to_multiple_of"] = 64
    batching = kind(**arguments) if kind is mdsx.Pad else kind(64, length="chosen", **arguments)
    rows: dict[str, Any] = {} if kind is mdsx.MaxTokens else {"batch_size": 8}
    data = StreamingDataset(url, transform=tokenized, seed=3, shuffle=mdsx.Shuffle(lanes=64))
    for batch in StreamingDataLoader(data, batching=batching, num_workers=workers, **rows):
        assert (batch["input_ids"].dtype, batch["labels"].dtype) == (torch.int32, torch.int64)
        own = batch["labels"] != -100
        assert own.any()
        assert not own.all()
        assert torch.equal(batch["labels"][own].int(), batch["input_ids"][own])
        assert not batch["input_ids"][~own].any()
    unknown = kind(pad_value={"chosen": 1}) if kind is mdsx.Pad else kind(64, length="chosen", pad_value={"chosen": 1})
    with pytest.raises(
        mdsx.UsageError, match=r"column 'chosen': the column is not packed \(expected input_ids, labels"
    ):
        next(iter(StreamingDataLoader(data, batching=unknown, **rows)))


def test_a_padded_run_resumes_and_fits_states_of_samples(url: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "drop_last": False}
    data = StreamingDataset(url, seed=5)
    expected = [n for batch in StreamingDataLoader(data, **options) for n in batch["id"].tolist()]
    first = StreamingDataLoader(data, batching=mdsx.Pad(), **options)
    begun = [n for batch in itertools.islice(first, 7) for n in batch["id"].tolist()]
    rest = []
    for rank, batching in enumerate((None, mdsx.Pad(), mdsx.Pad(pad_value=3))):
        data = StreamingDataset(url, seed=5, rank=rank, world_size=3)
        loader = StreamingDataLoader(data, batching=batching, **options)
        loader.load_state_dict(first.state_dict())
        rest += [n for batch in loader for n in batch["id"].tolist()]
    assert sorted(begun + rest) == sorted(expected) == list(range(N))


def test_a_rank_without_samples_gets_no_rows(url: str) -> None:
    few = mdsx.Dataset(url).select(0, 2)
    for transform in (None, dict):
        data = StreamingDataset(few, transform=transform, info_column="info", rank=0, world_size=3)
        (batch,) = StreamingDataLoader(data, 1, batching=mdsx.Pad(), drop_last=False)
        info = {name: (tuple(values.shape), values.dtype) for name, values in batch["info"].items()}
        assert info.pop("seed") == ((0,), torch.uint64)
        assert info == dict.fromkeys(("epoch", "position", "dataset", "sample"), ((0,), torch.int64))
        assert batch["chosen"].shape == (0, 0)
        assert batch["lengths"]["chosen"].shape == (0,)
        assert batch["id"].shape == (0,)
        assert batch["score"].shape == (0, 2) if transform is None else len(batch["score"]) == 0
        assert batch["text"] == []


def test_samples_that_fail_are_left_out(url: str) -> None:
    def transform(each: dict[str, Any]) -> dict[str, Any]:
        if each["id"] % 10 == 3:
            raise ValueError("no")
        return each

    data = StreamingDataset(url, columns=[*PAIR, "id", "text"], transform=transform)
    loader = StreamingDataLoader(data, 16, batching=mdsx.Pad(), drop_last=False, on_error="skip")
    found = []
    for batch in loader:
        scores = torch.stack([batch["id"], -batch["id"]], 1)
        check_padded({**batch, "score": scores})
        found += batch["id"].tolist()
    assert sorted(found) == [number for number in range(N) if number % 10 != 3]


def test_bounded_batches_bound_each_column(url: str) -> None:
    batching = mdsx.MaxTokens(64, length=PAIR, pad_to_multiple_of=4)
    seen = []
    for batch in StreamingDataLoader(StreamingDataset(url, seed=2), batching=batching, drop_last=False):
        check_padded(batch, multiple=4)
        longest = max(int(batch["lengths"][name].max()) for name in PAIR)
        assert len(batch["id"]) * longest <= 64
        tokens = sum(max(len(sample(n)[name]) for name in PAIR) for n in batch["id"].tolist())
        assert (batch["global_tokens"], batch["global_samples"]) == (tokens, len(batch["id"]))
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(N))


def rows_of(batches: Iterable[dict[str, Any]], name: str) -> dict[int, int]:
    """Return how many values each sample has in packed rows of a column. They are all its own."""
    found = {}
    for batch in batches:
        for row, segments, numbers in zip(batch[name], batch["segment_ids"][name], batch["id"], strict=True):
            for segment, number in enumerate(numbers, 1):
                values = row[segments == segment]
                assert (values == number).all()
                found[number] = len(values)
    return found


def test_packed_rows_have_the_same_samples_in_each_column(url: str) -> None:
    batches = list(StreamingDataLoader(StreamingDataset(url), 3, batching=mdsx.Pack(64, length=PAIR), drop_last=False))
    for name in PAIR:
        assert rows_of(batches, name) == {number: len(sample(number)[name]) for number in range(N)}
        for batch in batches:
            assert batch[name].shape == batch["position_ids"][name].shape
            assert batch[name].shape[1] == 64
            starts = (batch["position_ids"][name] == 0) & (batch["segment_ids"][name] > 0)
            counted = sum(len(sample(number)[name]) > 0 for row in batch["id"] for number in row)
            assert int(starts.sum()) == counted
    flat = mdsx.Pack(64, length=PAIR, layout="flat")
    for batch in StreamingDataLoader(StreamingDataset(url), 3, batching=flat, drop_last=False):
        for name in PAIR:
            cuts = batch["cu_seqlens"][name].tolist()
            for number, (start, stop) in zip(batch["id"].tolist(), itertools.pairwise(cuts), strict=True):
                assert batch[name][start:stop].tolist() == sample(number)[name].tolist()
            assert batch["max_seqlen"][name] == max(stop - start for start, stop in itertools.pairwise(cuts))


def test_pairs_resume_on_other_ranks(url: str) -> None:
    batching = mdsx.Pack(64, length=PAIR)
    first = StreamingDataLoader(StreamingDataset(url, seed=4), 2, batching=batching)
    read = list(itertools.islice(first, 5))
    rest = []
    for rank in range(3):
        data = StreamingDataset(url, seed=4, rank=rank, world_size=3)
        loader = StreamingDataLoader(data, 1, batching=batching, drop_last=False)
        loader.load_state_dict(first.state_dict())
        rest += list(loader)
    for name in PAIR:
        before, after = rows_of(read, name), rows_of(rest, name)
        assert not before.keys() & after.keys()
        assert {**before, **after} == {number: len(sample(number)[name]) for number in range(N)}
    other = StreamingDataLoader(StreamingDataset(url, seed=4), 2, batching=mdsx.Pack(64, length="chosen"))
    with pytest.raises(mdsx.StateError, match=r"groups\.lengths"):
        other.load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mdsx.Pad(0), "capacity is out of range"),
        (lambda: mdsx.Pad(oversize="truncate"), "needs a capacity"),
        (lambda: mdsx.Pad(8, oversize="split"), "oversize is unknown"),  # type: ignore[arg-type]
        (lambda: mdsx.Pad(pad_value="x"), "a pad value must be a number"),  # type: ignore[arg-type]
        (lambda: mdsx.Pad(pad_to_multiple_of=0), "pad_to_multiple_of is out of range"),
        (lambda: mdsx.Pack(64, length=PAIR, oversize="split"), "cannot be split"),
        (lambda: mdsx.Pack(64, length=[]), "length must be the name of a column, a list of names"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make: Any, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        make()


def test_loaders_refuse_what_padding_cannot_do(url: str) -> None:
    data = StreamingDataset(url)
    with pytest.raises(mdsx.UsageError, match=r"mdsx\.Pad makes the batches, so it takes no collate_fn"):
        StreamingDataLoader(data, 4, batching=mdsx.Pad(), collate_fn=list)
    with pytest.raises(mdsx.UsageError, match="uneven='repeat' is for"):
        StreamingDataLoader(data, 4, batching=mdsx.Pad(), uneven="repeat")
    with pytest.raises(mdsx.UsageError, match="batch_size is missing"):
        StreamingDataLoader(data, batching=mdsx.Pad())
    with pytest.raises(
        mdsx.UsageError, match=r"column 'rejected': .*longer than its sample.*length=\['chosen', 'rejec"
    ):
        list(StreamingDataLoader(data, batching=mdsx.MaxTokens(64, length=["chosen"])))
    renamed = StreamingDataset(url, columns={"lengths": "chosen"})
    with pytest.raises(mdsx.UsageError, match="packing adds a key 'lengths'"):
        StreamingDataLoader(renamed, 4, batching=mdsx.Pad())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(-1, 9),
)
def test_any_values_are_padded_as_a_plain_loop_does(
    tmp_path_factory: pytest.TempPathFactory, values: list[list[int]], size: int, multiple: int, pad: int
) -> None:
    url = tmp_path_factory.mktemp("any") / "dataset"
    with mdsx.Writer(url, {"a": "int8[*]"}) as out:
        for value in values:
            out.write({"a": value})
    batching = mdsx.Pad(pad_value=pad, pad_to_multiple_of=multiple)
    found = list(mdsx.Loader(str(url), size, shuffle=False, drop_last=False, batching=batching))
    assert len(found) == -(-len(values) // size)
    for batch, start in zip(found, range(0, len(values), size), strict=True):
        rows = values[start : start + size]
        width = -(-max(map(len, rows)) // multiple) * multiple
        assert batch["a"].tolist() == [row + [pad] * (width - len(row)) for row in rows]
        assert batch["lengths"]["a"].tolist() == list(map(len, rows))


def test_padded_batches_stay_what_they_are(url: str, tmp_path: Path) -> None:
    kept = list(StreamingDataLoader(StreamingDataset(url), 8, batching=mdsx.Pad(), num_workers=1))
    again = list(StreamingDataLoader(StreamingDataset(url), 8, batching=mdsx.Pad()))
    for a, b in zip(kept, again, strict=True):
        assert torch.equal(a["chosen"], b["chosen"])
        assert torch.equal(a["id"], b["id"])
