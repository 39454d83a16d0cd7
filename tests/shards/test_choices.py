"""Parts of a dataset: `select` by numbers, `split` and `filter`."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.base.process import Counter, Counters, work_for
from mdsx.datasets import excerpt_of
from mdsx.order import G, key, mix64
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.terminal import terminal
from tools.servers.s3 import S3Server

N = 300
COLUMNS = {"id": "int64", "score": "float32", "user": "str?", "tag": "int16?", "point": "float32[2]", "blob": "bytes"}


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "score": number % 10 / 10,
        "user": f"user {number % 40}" if number % 7 else None,
        "tag": number % 30 if number % 7 else None,
        "point": [number % 20, -0.0 if number % 2 else 0.0],
        "blob": bytes(400),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some twenty shards."""
    folder: Path = tmp_path_factory.mktemp("selection") / "data"
    with mdsx.Writer(folder, COLUMNS, shard_size=8000) as out:
        for number in range(N):
            out.write(row(number))
    return folder


@pytest.fixture(scope="module")
def data(folder: Path) -> mdsx.Dataset:
    return mdsx.Dataset(folder)


def ids(data: mdsx.Dataset) -> list[int]:
    return [int(sample["id"]) for sample in data.select_columns(["id"])]


# --- select


numbers = st.sets(st.integers(0, N - 1)).map(sorted)


@given(chosen=numbers, again=st.data())
def test_numbers_and_masks_select_as_a_list_does(data: mdsx.Dataset, chosen: list[int], again: st.DataObject) -> None:
    mask = np.isin(np.arange(N), chosen)
    found = data.select(chosen)
    assert ids(found) == chosen
    forms: list[Any] = [
        mask,
        mask.tolist(),
        torch.tensor(mask),
        np.array(chosen, np.uint16),
        torch.tensor(chosen).long(),
    ]
    assert {data.select(form).fingerprint for form in forms} == {found.fingerprint}
    places = again.draw(st.sets(st.integers(0, len(chosen) - 1)).map(sorted) if chosen else st.just([]))
    inner = found.select(places)
    assert ids(inner) == [chosen[place] for place in places]
    assert inner.fingerprint == data.select(ids(inner)).fingerprint
    assert ids(pickle.loads(pickle.dumps(inner))) == ids(inner)


@given(st.slices(N))
def test_ranges_select_as_a_list_does(data: mdsx.Dataset, chosen: slice) -> None:
    places = range(N)[chosen]
    if places.step < 0 and len(places) > 1:
        with pytest.raises(mdsx.UsageError, match="ascend"):
            data.select(chosen)
        return
    found = data.select(places)
    assert ids(found) == list(places)
    assert found.fingerprint == data.select(list(places)).fingerprint == data.select(chosen).fingerprint


def test_all_samples_have_the_fingerprint_of_the_dataset(data: mdsx.Dataset) -> None:
    whole: list[Any] = [range(N), list(range(N)), np.ones(N, bool), slice(None)]
    assert {data.select(form).fingerprint for form in whole} == {data.fingerprint}
    assert data.select(0, N).fingerprint == data.fingerprint
    assert data.select([7, 8, 9]).fingerprint == data.select(7, 10).fingerprint
    assert data.select(range(0, N, 2)).select([0, 1]).fingerprint == data.select([0, 2]).fingerprint


def test_the_fingerprint_of_numbers_is_their_hash(data: mdsx.Dataset) -> None:
    hashed = xxhash.xxh3_128_hexdigest(b"".join(number.to_bytes(8, "little") for number in (3, 141, 299)))
    step = f"{data.fingerprint}\n#{hashed}"
    assert data.select([3, 141, 299]).fingerprint == xxhash.xxh3_128_hexdigest(step.encode())
    assert data.select([3, 141, 299]).select(1, 3).fingerprint == data.select([141, 299]).fingerprint


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([3, 2], "ascend"),
        ([2, 2], "ascend"),
        (range(9, 0, -1), "ascend"),
        ([-1, 2], "out of range"),
        ([1, N], "out of range"),
        (range(N - 1, N + 2, 2), "out of range"),
        (np.array([1, 2**64 - 1], np.uint64), "out of range"),
        ([True, False], "a bool for each sample"),
        ([0.5], "a range, a list of integers, or a mask.*such as numbers > 0"),
        ("first", "a range, a list of integers, or a mask"),
        ([[1, 2]], "a range, a list of integers, or a mask"),
        (5, "a range, a list of integers, or a mask"),
    ],
)
def test_what_cannot_be_selected_raises(data: mdsx.Dataset, samples: Any, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        data.select(samples)


# --- split


def test_a_split_by_number_is_a_share_of_all_samples(data: mdsx.Dataset) -> None:
    parts = data.split(0.9, 0.1, seed=3)
    shares = data.select_share(0.0, 0.9, seed=3), data.select_share(0.9, 1.0, seed=3)
    assert [part.fingerprint for part in parts] == [share.fingerprint for share in shares]
    assert sorted(ids(parts[0]) + ids(parts[1])) == list(range(N))


def test_shares_may_leave_some_samples_out(data: mdsx.Dataset) -> None:
    first, second = data.split(Fraction(1, 3), 0.25)
    assert not set(ids(first)) & set(ids(second))
    assert 0 < len(first) + len(second) < 0.8 * N
    assert [len(part) for part in data.split(0, 0.0, by="id")] == [0, 0]
    with pytest.raises(mdsx.UsageError, match="more than 1"):
        data.split(0.9, 0.2)


@pytest.mark.parametrize("column", ["user", "tag", "point", "score", "id", "blob"])
def test_samples_with_equal_values_are_in_the_same_part(data: mdsx.Dataset, column: str) -> None:
    parts = data.split(0.3, 0.3, 0.4, by=column)
    assert sorted(number for part in parts for number in ids(part)) == list(range(N))
    zero = 0.0 if column == "point" else None  # 0.0 and -0.0 are equal
    values = [{str(sample[column] if zero is None else sample[column] + zero) for sample in part} for part in parts]
    assert not (values[0] & values[1] | values[0] & values[2] | values[1] & values[2])
    assert sum(map(bool, values)) > (column != "blob")


def test_the_hash_of_a_value_follows_the_specification(data: mdsx.Dataset) -> None:
    def part(bits: int, seed: int) -> int:
        return mix64((key(seed, 6) + (bits + 1) * G) % 2**64) >> 63

    expected = {
        "id": list(range(N)),
        "tag": [row(number)["tag"] or 0 for number in range(N)],
        "score": [int(np.float64(np.float32(row(number)["score"])).view(np.uint64)) for number in range(N)],
        "user": [xxhash.xxh3_64_intdigest((row(number)["user"] or "").encode()) for number in range(N)],
        "point": [xxhash.xxh3_64_intdigest(np.array([number % 20, 0.0], "<f8").tobytes()) for number in range(N)],
    }
    for column, bits in expected.items():
        found = data.split(0.5, 0.5, seed=11, by=column)[1]
        assert ids(found) == [number for number in range(N) if part(bits[number], 11)]


def test_a_sample_stays_in_its_part_as_the_dataset_grows(data: mdsx.Dataset, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "more", {"id": "int64", "tag": "int64"}) as out:  # of another width
        for number in range(2 * N):
            out.write({"id": number, "tag": row(number)["tag"] or 0})
    before, after = (set(ids(part.split(0.5, by="tag")[0])) for part in (data, mdsx.Dataset(tmp_path / "more")))
    assert before == {number for number in after if number < N}


def test_a_column_of_another_type_does_not_split(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"info": "json", "words": "str[*]"}) as out:
        out.write({"info": {}, "words": []})
    for column in ("info", "words"):
        with pytest.raises(mdsx.UsageError, match="split only by a column"):
            mdsx.Dataset(tmp_path).split(0.5, 0.5, by=column)
    with pytest.raises(mdsx.UsageError, match="no such column"):
        mdsx.Dataset(tmp_path).split(0.5, 0.5, by="user")


# --- filter


def test_a_filter_has_the_samples_for_which_the_function_is_true(data: mdsx.Dataset) -> None:
    expected = [number for number in range(N) if np.float32(number % 10 / 10) > 0.5]
    by_sample = data.filter(lambda score: score > 0.5, ["score"])
    by_batch = data.filter(lambda score: score > 0.5, "score", batched=True)
    by_dict = data.filter(lambda sample: sample["score"] > 0.5)
    of_dicts = data.filter(lambda columns: columns["score"] > 0.5, batched=True)
    found = [by_sample, by_batch, by_dict, of_dicts]
    assert [ids(each) for each in found] == [expected] * 4
    assert {each.fingerprint for each in found} == {data.select(expected).fingerprint}
    users = data.filter(lambda user, number: user is None and number % 2, input_columns=["user", "id"])
    assert ids(users) == list(range(7, N, 14))
    assert data.filter(lambda number: True, ["id"]).fingerprint == data.fingerprint
    assert len(data.filter(lambda number: False, ["id"])) == 0


def test_a_selection_is_filtered(data: mdsx.Dataset) -> None:
    seen: list[int] = []

    def thirds(number: Any) -> bool:
        seen.append(int(number))
        return bool(number % 3 == 0)

    found = data.select(range(0, N, 2)).select_columns({"number": "id"}).filter(thirds, ["number"])
    assert seen == list(range(0, N, 2))
    assert [int(sample["number"]) for sample in found] == list(range(0, N, 6))


def test_batches_have_at_most_the_size_that_was_given(data: mdsx.Dataset) -> None:
    sizes: list[int] = []

    def all_of(numbers: Any) -> Any:
        sizes.append(len(numbers))
        return numbers >= 0

    data.filter(all_of, ["id"], batched=True, batch_size=7)
    assert max(sizes) == 7
    assert sum(sizes) == N


def test_a_line_shows_the_progress(data: mdsx.Dataset) -> None:
    with terminal() as sent:
        data.filter(lambda number: True, ["id"], progress=True)
        data.split(1.0, by="id", progress=True)
    shown = "".join(sent)
    assert f"filter: {N} of {N} samples" in shown
    assert f"split: {N} of {N} samples" in shown


def test_errors_of_the_function_name_the_sample(data: mdsx.Dataset) -> None:
    def picky(number: Any) -> bool:
        if np.any(number == 202):
            raise ValueError("no use")
        return bool(number)

    with pytest.raises(ValueError, match="no use") as caught:
        data.filter(picky, ["id"])
    assert caught.value.__notes__ == ["mdsx: in the function of filter(), at sample 202"]
    with pytest.raises(ValueError, match="no use") as caught:
        data.select(200, 210).filter(lambda number: picky(number) and number > 0, ["id"], batched=True)
    assert "at samples 0 to" in caught.value.__notes__[0]
    with pytest.raises(mdsx.UsageError, match="a bool for each sample"):
        data.filter(lambda number: number, ["id"], batched=True)
    with pytest.raises(mdsx.UsageError, match=r"return a bool .found None.*lack a return"):
        data.filter(lambda number: None, ["id"])
    with pytest.raises(mdsx.UsageError, match="no such column"):
        data.filter(lambda number: True, ["no such"])


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_filter_reads_only_rows_for_fixed_size_columns(s3: S3Server, tmp_path: Path, compression: Any) -> None:
    url = s3.make_bucket(f"rows-{compression}".lower()) + "/data"
    random = np.random.default_rng(0)
    with mdsx.Writer(url, {"id": "int64", "blob": "bytes"}, shard_size=2**23, compression=compression) as out:
        for number in range(N):
            out.write({"id": number, "blob": random.bytes(20_000)})
    far, counters = mdsx.Dataset(url, cache=mdsx.Cache(tmp_path)), Counters()
    work_for(counters)
    try:
        chosen = far.filter(lambda number: number % 3 == 0, ["id"], batched=True)
    finally:
        work_for(None)
    assert chosen.fingerprint == far.select(range(0, N, 3)).fingerprint
    assert 0 < counters.totals[Counter.DOWNLOADED] < 2_500_000  # of 6 MB


def test_damaged_rows_are_found(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = tmp_path / "shard.00003.mdsx"
    content = bytearray(damaged.read_bytes())
    content[excerpt_of(mdsx.Dataset(tmp_path)).shards.schema.rows_offset] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(mdsx.CorruptError, match="rows are damaged"):
        mdsx.Dataset(tmp_path).filter(lambda number: True, ["id"])


# --- training


@pytest.mark.parametrize("kind", ["numbers", "filter", "split"])
def test_a_part_streams_and_resumes(data: mdsx.Dataset, kind: str) -> None:
    part = {
        "numbers": lambda: data.select(np.arange(N) % 3 == 1),
        "filter": lambda: data.filter(lambda score: score < 0.35, ["score"], batched=True),
        "split": lambda: data.split(0.6, 0.4, by="tag")[0],
    }[kind]()
    expected = ids(part)

    def loader(batch: int) -> StreamingDataLoader:
        return StreamingDataLoader(StreamingDataset(part, columns=["id"], seed=5), batch_size=batch, drop_last=False)

    first, seen = loader(16), list[int]()
    for number, batch in enumerate(first):
        seen += batch["id"].tolist()
        if number == 2:
            break
    second = loader(7)
    second.load_state_dict(first.state_dict())
    for batch in second:
        seen += batch["id"].tolist()
    assert sorted(seen) == expected
    assert seen != expected
    with pytest.raises(mdsx.StateError, match="fingerprint"):
        StreamingDataLoader(StreamingDataset(data, columns=["id"], seed=5), batch_size=7).load_state_dict(
            first.state_dict()
        )


def test_parts_are_components_of_a_mixture(data: mdsx.Dataset) -> None:
    low, high = (data.filter(lambda s, k=k: (s < 0.45) == k, ["score"], batched=True) for k in (True, False))
    mixture = mdsx.Mixture({"low": (low, 0.25), "high": (high, 0.75)}, columns=["id"], epoch_samples=80)
    (batch,) = StreamingDataLoader(StreamingDataset(mixture, seed=1), batch_size=80)
    scores = [row(number)["score"] for number in batch["id"].tolist()]
    assert abs(sum(score < 0.45 for score in scores) - 20) < 4


def test_a_stratified_split_gives_each_part_its_share_of_every_value(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"label": "str?", "n": "int64"}, shard_size=2000) as out:
        for number in range(1000):
            out.write({"label": [None, "cat", "dog", "owl"][number * number % 4], "n": number})
    data = mdsx.Dataset(tmp_path)
    parts = data.split(0.8, 0.15, 0.05, by="label", stratify=True, seed=3)
    assert [len(part) for part in parts] == [800, 150, 50]
    assert sorted(sample["n"] for part in parts for sample in part) == list(range(1000))
    for label in (None, "cat"):
        assert [sum(sample["label"] == label for sample in part) for part in parts] == [400, 75, 25]
    again = mdsx.Dataset(tmp_path).split(0.8, 0.15, 0.05, by="label", stratify=True, seed=3)
    assert [part.fingerprint for part in again] == [part.fingerprint for part in parts]
    assert parts[0].fingerprint != data.split(0.8, by="label", stratify=True, seed=4)[0].fingerprint
    few, rest = data.select(0, 100).split(0.5, 0.5, by="label", stratify=True)
    assert (len(few), len(rest)) == (50, 50)
    assert [len(part) for part in data.select(0, 0).split(0.5, 0.5, by="label", stratify=True)] == [0, 0]
    with pytest.raises(mdsx.UsageError, match="stratify=True needs a column; give it as by="):
        data.split(0.5, 0.5, stratify=True)


@pytest.mark.parametrize(
    ("kind", "value"), [("int32?", 0), ("float32?", 0.0), ("str?", ""), ("int8[*]?", []), ("bool?", False)]
)
def test_null_is_a_stratum_of_its_own(tmp_path: Path, kind: str, value: object) -> None:
    with mdsx.Writer(tmp_path, {"label": kind, "n": "int64"}, shard_size=400) as out:
        for number in range(200):
            out.write({"label": None if number % 4 else value, "n": number})
    train, valid = mdsx.Dataset(tmp_path).split(0.8, 0.2, by="label", stratify=True)
    assert sum(sample["label"] is None for sample in train) == 120
    assert sum(sample["label"] is None for sample in valid) == 30


def test_a_stratified_split_of_a_selection_goes_by_numbers_of_the_dataset(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"label": "int8", "n": "int64"}, shard_size=400) as out:
        for number in range(300):
            out.write({"label": 0, "n": number})
    data = mdsx.Dataset(tmp_path)
    for selection in (data.select(100, 300), data.filter(lambda n: n >= 100, ["n"], batched=True)):
        half, _ = selection.split(0.5, 0.5, by="label", stratify=True, seed=5)
        hashes = {number: _hash(number, 5) for number in range(100, 300)}
        assert [sample["n"] for sample in half] == sorted(sorted(hashes, key=hashes.__getitem__)[:100])


def _hash(number: int, seed: int) -> int:
    return mix64((key(seed, 6) + (number + 1) * G) % 2**64)
