"""Columns of samples from many shards have the written values, in any order and batches. Damage raises with its place.

The shards are in memory and unverified: `gather` itself must find invalid lengths and offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdsx.errors import CorruptError
from mdsx.format import BASES, MEDIA, NULL, NUMBERS, Encoder, Schema, ShardBuilder, ShardView
from mdsx.shards import Columns, Selection, present
from mdsx.shards.gather import Source, gather
from tests.format.test_round_trip import columns_and_samples

Sample = dict[str, Any]


def shard(columns: dict[str, str], samples: Sequence[Sample]) -> bytearray:
    schema = Schema.from_columns(columns)
    encoder, builder = Encoder(schema), ShardBuilder(schema, 2**40)
    builder.add(encoder.gather([value for sample in samples for value in encoder.sample(sample)[0]]))
    return bytearray(builder.finish())


def select(
    data: bytes | bytearray, samples: Sequence[int], name: str = "a shard", *, verify: bool = False
) -> Selection:
    return ShardView.parse(data, file=name).select(np.array(samples, np.int64), verify=verify)


def same(kind: str, found: Any, written: Any) -> bool:
    """Return whether a value equals the written one and has the promised type."""
    base = kind.split("[")[0].rstrip("?")
    if written is None:
        return found is None
    if BASES[base].kind == "bytes" and not isinstance(written, list):
        return isinstance(found, bytes | memoryview) and bytes(found) == written
    if base not in NUMBERS:
        return type(found) is type(written) and repr(found) == repr(written)
    dtype = NUMBERS[base].numpy(np.zeros(1, NUMBERS[base].item)).dtype
    expected = np.asarray(written, dtype)
    if isinstance(found, bool):
        return base == "bool" and expected.shape == () and found == written
    return (found.dtype, found.shape, found.tobytes()) == (dtype, expected.shape, expected.tobytes())


@st.composite
def datasets(draw: st.DrawFn) -> tuple[dict[str, str], list[Sample], list[Source], list[int], list[int]]:
    """Draw columns, samples, their sources, the place of each sample in the result, and the sizes of the batches.

    Some shards have their columns in another order, under other names, and one more before, between or after them.
    """
    columns, samples = draw(columns_and_samples())
    samples = samples * draw(st.integers(1, 4))
    other = draw(st.permutations([*columns, "more"]))
    more = draw(st.sampled_from(["uint8", "float64[3]", "str", "bytes?"]))
    extra = {"uint8": 7, "float64[3]": [0.5, 1, 2], "str": "ä", "bytes?": None}[more]
    sources: list[Source] = []
    cuts = sorted(draw(st.lists(st.integers(0, len(samples)), max_size=4)))
    for start, stop in pairwise([0, *cuts, len(samples)]):
        order = draw(st.permutations(range(stop - start)))  # in the shard's order
        lie: list[Sample] = [{} for _ in order]
        for sample, place in zip(samples[start:stop], order, strict=True):
            lie[place] = sample
        if draw(st.booleans()) or not lie:
            numbers, kinds = tuple(range(len(columns))), columns
        else:
            numbers = tuple(other.index(name) for name in columns)
            kinds = {f"my {name}": columns.get(name, more) for name in other}
            lie = [{f"my {name}": sample.get(name, extra) for name in other} for sample in lie]
        if lie:
            sources.append((select(shard(kinds, lie), order, verify=draw(st.booleans())), numbers))
    places = draw(st.permutations(range(len(samples))))
    stops = sorted(draw(st.lists(st.integers(0, len(samples)), max_size=4)))
    return columns, samples, sources, places, np.diff([0, *stops, len(samples)]).tolist()


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(datasets(), st.booleans())
def test_columns_equal_the_written_values_in_any_order(made: Any, views: bool) -> None:
    columns, samples, sources, places, sizes = made
    schema = Schema.from_columns(columns)
    wanted: list[Sample] = [{} for _ in samples]
    for sample, place in zip(samples, places, strict=True):
        wanted[place] = sample
    batches = list(gather(schema, sources, np.array(places, np.int64), sizes, views=views))
    assert len(batches) == len(sizes)
    for batch, (start, stop) in zip(batches, pairwise(accumulate(sizes, initial=0)), strict=True):
        shown = present(schema, batch)
        assert list(shown) == list(columns)
        for name, values in shown.items():
            assert len(values) == stop - start
            for found, sample in zip(values, wanted[start:stop], strict=True):
                assert same(columns[name], found, sample[name]), (name, found, sample[name])
                encoded = BASES.get(columns[name].rstrip("?")) in (BASES["bytes"], *MEDIA)
                assert isinstance(found, memoryview) == (views and encoded and found is not None)


def test_an_array_of_a_batch_is_its_own_and_writable() -> None:
    data = shard({"a": "uint16[2]", "b": "uint16[*]"}, [{"a": [n, n], "b": [n] * n} for n in range(4)])
    before = bytes(data)
    first, second = gather(ShardView.parse(data).schema, [(select(data, [0, 1, 2, 3]), (0, 1))], np.arange(4), [2, 2])
    for batch in (first, second):
        batch["a"][...] = 9
        for values in batch["b"]:
            values[...] = 9
    assert second["a"].tolist() == [[9, 9]] * 2
    assert bytes(data) == before


def test_views_are_read_only_and_of_the_shard_itself() -> None:
    data = shard({"a": "bytes"}, [{"a": b"some"}, {"a": b""}])
    (batch,) = gather(ShardView.parse(data).schema, [(select(data, [0, 1]), (0,))], np.arange(2), [2], views=True)
    assert batch["a"] == [b"some", b""]
    assert all(value.readonly for value in batch["a"])
    data[data.rindex(b"some")] = ord("S")
    assert batch["a"][0] == b"Some"


# --- a sample that does not exist


@pytest.mark.parametrize("samples", [[3], [0, 3], [-1], [0, -1, 1], [2**62], [-(2**63)]])
@pytest.mark.parametrize("columns", [{"a": "int64"}, {"a": "str"}])
def test_a_sample_outside_the_shard_raises(columns: dict[str, str], samples: list[int]) -> None:
    value = {"int64": 5, "str": "text"}[columns["a"]]
    data = shard(columns, [{"a": value}] * 3)
    places = np.arange(len(samples))
    with pytest.raises(IndexError, match="of 3 in a shard"):
        list(gather(Schema.from_columns(columns), [(select(data, samples), (0,))], places, [len(samples)]))


def test_no_samples_are_empty_columns() -> None:
    columns = {"a": "float32[2]", "b": "str"}
    schema = Schema.from_columns(columns)
    for sources in ([], [(select(shard(columns, [{"a": [1, 2], "b": "x"}]), []), (0, 1))]):
        first, second = gather(schema, sources, np.arange(0), [0, 0])
        for batch in (first, second):
            assert (batch["a"].shape, batch["a"].dtype, batch["b"]) == ((0, 2), np.float32, [])


# --- damage in an unverified shard

COLUMNS = {"number": "uint8", "text": "str", "data": "json", "maybe": "bytes?", "bool": "bool?"}


def damaged(sample: int, **fields: Any) -> bytearray:
    """Return a shard of 4 samples, with changed `fields` in the row of one sample."""
    data = shard(COLUMNS, [{"number": n, "text": "text", "data": [n], "maybe": None, "bool": True} for n in range(4)])
    view = ShardView.parse(data)
    rows = np.frombuffer(data, view.schema.row_dtype, 4, view.rows_offset)
    for name, value in fields.items():
        rows[name][sample] = value
    return data


def gathered(*shards: bytes | bytearray) -> list[Columns]:
    """Return all samples of the shards, the last one first, in two batches."""
    sources = [(select(data, range(4), f"shard {n}"), tuple(range(5))) for n, data in enumerate(shards)]
    count = 4 * len(shards)
    return list(gather(Schema.from_columns(COLUMNS), sources, np.arange(count)[::-1].copy(), [1, count - 1]))


def test_undamaged_shards_are_read() -> None:
    assert [number for batch in gathered(damaged(0), damaged(0)) for number in batch["number"]] == [3, 2, 1, 0] * 2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"start": 1000}, "outside the heap"),
        ({"start": 2**64 - 1}, "outside the heap"),
        ({"start": 2**63}, "outside the heap"),
        ({"lengths": [4, 3, NULL, 33]}, "outside the heap"),
        ({"lengths": [NULL - 1, 3, NULL, 1]}, "outside the heap"),
        ({"lengths": [NULL - 1] * 4}, "outside the heap"),
        ({"lengths": [NULL, 3, NULL, 1]}, "null in a column that is not nullable"),
        ({"lengths": [4, NULL, NULL, 1]}, "null in a column that is not nullable"),
    ],
)
def test_a_row_outside_the_heap_raises(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(CorruptError, match=problem) as caught:
        gathered(damaged(0), damaged(2, **fields), damaged(0))
    assert caught.value.file == "shard 1"
    assert str(caught.value.place).startswith("sample 2")
    if "null" in problem:
        name = "text" if fields["lengths"][0] == NULL else "data"
        assert caught.value.place == f"sample 2, column {name!r}"


def test_values_come_from_the_samples_own_heap() -> None:
    """Bytes of a longer heap next to it are not its own."""
    longer = [{"number": 0, "text": "x" * 500, "data": [0], "maybe": None, "bool": True}] * 4
    with pytest.raises(CorruptError, match="outside the heap") as caught:
        gathered(shard(COLUMNS, longer), damaged(1, start=300), shard(COLUMNS, longer))
    assert (caught.value.file, caught.value.place) == ("shard 1", "sample 1")


@pytest.mark.parametrize(
    ("column", "at", "value", "problem"),
    [("text", 2, 0xFF, "not UTF-8"), ("data", 5, ord("x"), "JSON"), ("bool", 7, 2, "neither 0 nor 1")],
)
def test_invalid_bytes_raise_naming_shard_sample_and_column(column: str, at: int, value: int, problem: str) -> None:
    """Each sample has 8 bytes of heap: "text", "[n]" and a bool."""
    data = damaged(0)
    view = ShardView.parse(data)
    data[len(data) - len(view.heap) + 2 * 8 + at] = value
    with pytest.raises(CorruptError, match=problem) as caught:
        gathered(damaged(0), data, damaged(0))
    assert (caught.value.file, caught.value.place) == ("shard 1", f"sample 2, column {column!r}")
