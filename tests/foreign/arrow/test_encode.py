"""Arrow data gives the bytes of the same values as Python objects or NumPy arrays, with the same checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pandas
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import SampleError
from mdsx.foreign.arrow import arrow_columns, encode_batch
from mdsx.format import Encoder, Schema, ShardBuilder
from tests.foreign.arrow.kinds import JPEG, KINDS, PNG

FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def shards(columns: Mapping[str, str], batch: Any, shard_size: int = 2**20) -> Iterator[bytes]:
    """Return the shards that a writer makes of a batch: of Arrow data, or of a mapping of lists and arrays."""
    encoder = Encoder(Schema.from_columns(columns))
    builder = ShardBuilder(encoder.schema, shard_size)
    for encoded in encode_batch(encoder, batch):
        taken = 0
        while (taken := builder.add(encoded, taken)) < encoded.samples:
            yield bytes(builder.finish())
    yield bytes(builder.finish())


def same(columns: Mapping[str, str], arrow: Any, plain: Mapping[str, Any], shard_size: int = 2**20) -> None:
    assert list(shards(columns, arrow, shard_size)) == list(shards(columns, plain, shard_size))


def refusal(kind: str, array: Any) -> SampleError:
    with pytest.raises(SampleError) as caught:
        list(shards({"x": kind}, {"x": array}))
    return caught.value


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any], dict[str, list[Any]]]:
    """Columns, and the same values for them as Arrow arrays (slices, chunks) and as Python objects."""
    count = draw(st.integers(0, 5))
    columns, arrow, plain = {}, {}, {}
    for name in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True)):
        text, type, value = KINDS[name]
        if draw(st.booleans()):
            text, value = f"{text}?", value | st.none()
        values = draw(st.lists(value, min_size=count + 2, max_size=count + 2))
        cut = 1 + draw(st.integers(0, count))
        chunks = [pa.array(values, type).slice(1, cut - 1), pa.array(values[cut:], type)[:-1]]
        columns[name], plain[name] = text, values[1:-1]
        arrow[name] = pa.chunked_array(chunks) if draw(st.booleans()) else pa.array(values, type)[1:-1]
        if draw(st.booleans()) and name not in ("jpeg", "bytes"):
            arrow[name] = plain[name]  # a column without Arrow
    return columns, arrow, plain


@given(batches(), st.sampled_from([1, 250, 2**20]))
def test_arrow_gives_the_bytes_of_python_objects(batch: Any, shard_size: int) -> None:
    columns, arrow, plain = batch
    same(columns, arrow, plain, shard_size)


def test_arrays_shared_with_numpy_may_change_after_the_batch() -> None:
    encoder = Encoder(Schema.from_columns({"x": "int64?", "y": "int16[2]?", "z": "int16[*]"}))
    numbers, pairs = np.arange(3), np.arange(6, dtype=np.int16)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(pairs), 2)
    (encoded,) = encode_batch(encoder, {"x": pa.array(numbers), "y": lists, "z": lists})
    before = bytes(encoded.heap.data)
    numbers[:], pairs[:] = 9, 9
    assert bytes(encoded.heap.data) == before


def test_tables_of_any_origin_give_the_same_bytes() -> None:
    table = pa.table({"id": np.arange(2000), "text": [f"täxt {number}" for number in range(2000)]})
    columns, plain = arrow_columns(table), {"id": np.arange(2000), "text": table["text"].to_pylist()}
    same(columns, table, plain)
    same(columns, table.to_batches()[0], plain)
    same(columns, pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=300)), plain)
    same(columns, pl.from_arrow(table), plain)
    same(columns, duckdb.sql('select * from "table"'), plain)
    same(columns, {"id": pl.Series(plain["id"]), "text": pl.Series(plain["text"])}, plain)
    same(columns, pa.concat_tables([table[:1], table[1:2], table[2:]]), plain)


def test_columns_of_pandas_keep_nan_and_text() -> None:
    frame = pandas.DataFrame(
        {"x": [1.5, np.nan], "n": [1, 2], "s": ["a", None], "o": pandas.Series([b"1", b""], dtype=object)}
    )
    columns = {"x": "float64", "n": "int64", "s": "str?", "o": "bytes"}
    assert arrow_columns(frame) == columns
    numbers = {"n": np.arange(70_000)}
    same({"n": "int64"}, pandas.DataFrame(numbers), numbers, 2**24)
    same(columns, frame, {"x": [1.5, np.nan], "n": [1, 2], "s": ["a", None], "o": [b"1", b""]})


def test_values_larger_than_a_row_are_not_joined_with_it() -> None:
    values = [bytes([number]) * 5000 for number in range(9)]
    same(
        {"a": "bytes", "b": "bytes?"},
        {"a": pa.array(values), "b": pa.array([None, *values[1:]])},
        {"a": values, "b": [None, *values[1:]]},
    )


def test_numpys_arrays_give_the_same_bytes() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
    same({"x": "uint8[2,3]"}, {"x": tensors}, {"x": array})
    same({"x": "uint8[*,3]"}, {"x": tensors[1:3]}, {"x": array[1:3]})
    turned = pa.FixedShapeTensorArray.from_numpy_ndarray(np.moveaxis(array, 1, 2))
    assert turned.type.permutation is None or turned.type.shape != turned.to_numpy_ndarray().shape[1:]
    same({"x": "uint8[3,2]"}, {"x": turned}, {"x": np.moveaxis(array, 1, 2)})


def test_dates_times_and_decimals_keep_their_exact_values() -> None:
    day, moment = date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 5)
    table = pa.table(
        {
            "date": [day],
            "time": pa.array([moment.time()], pa.time64("us")),
            "stamp": pa.array([moment], pa.timestamp("us")),
            "zone": pa.array([moment], pa.timestamp("ns", "Asia/Tokyo")),
            "span": pa.array([timedelta(seconds=-3)], pa.duration("ms")),
            "price": pa.array([Decimal("1.10")], pa.decimal128(20, 2)),
            "stamps": [[moment, moment]],
        }
    )
    since = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    plain = {
        "date": [(day - date(1970, 1, 1)).days],
        "time": [12 * 3600 * 10**6 + 5],
        "stamp": [since],
        "zone": [since * 1000],
        "span": [-3000],
        "price": ["1.10"],
        "stamps": [[since, since]],
    }
    same(arrow_columns(table), table, plain)


def test_nested_values_become_json_with_the_same_rules() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 1)
    array = pa.array(
        [{"at": moment, "price": Decimal("1.0"), "map": [("a", 1)], "pairs": [(1, "x")], "tag": "t"}, None],
        pa.struct(
            [
                ("at", pa.timestamp("s")),
                ("price", pa.decimal128(3, 1)),
                ("map", pa.map_(pa.string(), pa.int8())),
                ("pairs", pa.map_(pa.int8(), pa.string())),
                ("tag", pa.dictionary(pa.int8(), pa.string())),
            ]
        ),
    )
    expected = [{"at": 1, "price": "1.0", "map": {"a": 1}, "pairs": [[1, "x"]], "tag": "t"}, None]
    same({"x": "json?"}, {"x": array}, {"x": expected})
    same({"x": "json"}, {"x": pa.array(['{"a":[1]}', "null"], pa.json_())}, {"x": [{"a": [1]}, None]})
    assert "duplicate" in str(refusal("json", pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))))
    assert refusal("json", pa.array(["1", "{"], pa.json_())).place == "sample 1 of the batch, column 'x'"


@pytest.mark.parametrize("view", [pa.list_view(pa.int8()), pa.large_list_view(pa.int8())], ids=str)
def test_list_views_have_the_values_that_they_show(view: Any) -> None:
    values = [[1], [2, 3], None, [], [4, 5]]
    array = pa.array(values, view)
    for part in (array, array[1:4], array.take(pa.array([4, 0, 2, 1, 4]))):
        same({"x": "int8[*]?"}, {"x": part}, {"x": part.to_pylist()})
        same({"x": "json?"}, {"x": part}, {"x": part.to_pylist()})


def test_a_struct_with_two_fields_of_one_name_is_refused() -> None:
    """As a dict it would lose one of them."""
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    assert "duplicate names" in str(refusal("json", twice))
    assert "duplicate names" in str(refusal("msgpack", pa.ListArray.from_arrays(pa.array([0, 1]), twice)))


def test_empty_lists_from_java_have_no_offsets() -> None:
    """As Spark writes an array inside of arrays that are all empty."""
    inner = pa.ListArray.from_buffers(
        pa.list_(pa.string()), 0, [None, pa.py_buffer(b"")], children=[pa.array([""])[:0]]
    )
    outer = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), inner)
    same({"x": "json"}, {"x": outer}, {"x": [[], []]})
    same({"x": "str[*]"}, {"x": inner}, {"x": []})


def test_files_of_hugging_face_are_stored_by_their_bytes() -> None:
    files = pa.array([{"bytes": PNG, "path": None}, None, {"bytes": PNG + b"1", "path": "a.png"}], FILE)
    same({"x": "png?"}, {"x": files}, {"x": [PNG, None, PNG + b"1"]})
    same({"x": "bytes[*]"}, {"x": pa.array([files.to_pylist()[:1], []], pa.list_(FILE))}, {"x": [[PNG], []]})
    error = refusal("bytes", pa.array([{"bytes": b"", "path": None}, {"bytes": None, "path": "a.png"}], FILE))
    assert error.place == "sample 1 of the batch, column 'x'"
    assert "a.png" in str(error)
    assert "embed" in str(error)


class Column:
    """A column that has only Arrow's C interface, as those of other libraries."""

    def __init__(self, array: pa.ChunkedArray) -> None:
        self._array = array

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._array.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("cuts", [[0], [30, 30], [7, 7, 50], [60], [0, 0]])
def test_empty_batches_of_a_stream_are_left_out(cuts: list[int]) -> None:
    """pyarrow cannot join those that came through the C interface and do not begin at the first value."""
    values = [None if place % 7 == 3 else place / 3 for place in range(65)]
    whole = pa.array(values)[5:]
    batches = [pa.record_batch({"x": whole[start:stop]}) for start, stop in pairwise([0, *cuts, 60])]
    same({"x": "float64?"}, pa.RecordBatchReader.from_batches(batches[0].schema, batches), {"x": values[5:]})
    column = pa.chunked_array([batch["x"] for batch in batches])
    same({"x": "float64?"}, {"x": Column(column)}, {"x": values[5:]})


def test_nulls_in_dictionaries_and_run_ends_make_a_column_nullable() -> None:
    values = ["a", "a", None, None, "b"]
    columns = {
        "runs": pa.compute.run_end_encode(pa.array(values)),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 1, 2]), pa.array(["a", None, "b"])),
        "neither": pa.compute.run_end_encode(pa.array([1, 1, 2, 2, 2])),
        "unused": pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 0, 0]), pa.array(["a", None])),
    }
    table = pa.table(columns)
    kinds = arrow_columns(table)
    assert kinds == {"runs": "str?", "dictionary": "str?", "neither": "int64", "unused": "str"}
    same(kinds, table, {"runs": values, "dictionary": values, "neither": [1, 1, 2, 2, 2], "unused": ["a"] * 5})


def test_bytes_under_a_null_are_not_stored() -> None:
    hidden = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\2"), pa.py_buffer(np.array([0, 2, 3], np.int32)), pa.py_buffer(b"abc")]
    )
    same({"x": "str?"}, {"x": hidden}, {"x": [None, "c"]})


@pytest.mark.parametrize(
    ("kind", "array", "place", "words"),
    [
        ("int64", pa.array([1, None]), "sample 1 of the batch, column 'x'", "declare it as 'int64?'"),
        ("str", pa.array(["a", None]), "sample 1 of the batch, column 'x'", "declare it as 'str?'"),
        ("int8", pa.array([1, None, 128]).drop_null(), "sample 1 of the batch, column 'x'", "-128 to 127, found 128"),
        ("int8?", pa.array([1, None, 128]), "sample 2 of the batch, column 'x'", "-128 to 127, found 128"),
        ("int8", pa.array([1.0]), "column 'x'", "int8 or other integers"),
        ("float32", pa.array([1.0]), "column 'x'", "float32, a narrower float"),
        ("int8", pa.array(["a"]), "column 'x'", "found Arrow's string"),
        ("str", pa.array([b"a"]), "column 'x'", "found Arrow's binary"),
        ("bytes", pa.array(["a"]), "column 'x'", "found Arrow's string"),
        ("jpeg", pa.array([JPEG, b"GIF"]), "sample 1 of the batch, column 'x'", "found b'GIF'"),
        ("jpeg[*]", pa.array([[], [JPEG, b"GIF"]]), "sample 1 of the batch, column 'x'", "found b'GIF' at [1]"),
        (
            "int8[*]",
            pa.array([[1], [2, None]]),
            "sample 1 of the batch, column 'x'",
            "None at [1]); declare the column as",
        ),
        ("int8[*]", pa.array([[1], [2, 300]]), "sample 1 of the batch, column 'x'", "found 300 at [1]"),
        ("int8[2]", pa.array([[1, 2], [2]]), "sample 1 of the batch, column 'x'", "shape [2], found shape [1]"),
        ("int8[2]", pa.array([1]), "column 'x'", "lists of shape [2]"),
        ("int8[*]", pa.array([[[1]]]), "column 'x'", "lists of shape [*]"),
        ("int8[*,*]", pa.array([[[1], [2]], [[1], [2, 3]]]), "sample 1 of the batch, column 'x'", "items of one shape"),
        ("int8[*,*]", pa.array([[[1]], [[1], None]]), "sample 1 of the batch, column 'x'", "None at [1]"),
        ("int8[*,2]", pa.array([[[1, 2]], [[1, 2], [3, 300]]]), "sample 1 of the batch, column 'x'", "300 at [1, 1]"),
        (
            "str[*]",
            pa.array([["a"], ["b", None]]),
            "sample 1 of the batch, column 'x'",
            "at [1]); declare the column as json",
        ),
        ("bytes[*]", pa.array([[b"a"], [None]]), "sample 1 of the batch, column 'x'", "declare the column as msgpack"),
        ("str[*]", pa.array(["a"]), "column 'x'", "found Arrow's string"),
        (
            "msgpack",
            pa.array([[], [{"bytes": b"", "path": ""}, {"bytes": None, "path": ""}]], pa.list_(FILE)),
            "sample 1 of the batch, column 'x'",
            "at [1]",
        ),
        ("json", pa.array([1.0, float("nan")]), "sample 1 of the batch, column 'x'", "declare the column as msgpack"),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind: str, array: Any, place: str, words: str) -> None:
    error = refusal(kind, array)
    assert error.place == place
    assert words in str(error)


def test_text_must_be_utf_8() -> None:
    wrong = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")]
    )
    assert refusal("str", wrong).place == "sample 1 of the batch, column 'x'"
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), wrong)
    assert refusal("str[*]", lists).place == "sample 1 of the batch, column 'x'"
    assert refusal("json", lists).place == "sample 1 of the batch, column 'x'"
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2]), pa.array(["k", "k"]), wrong)
    assert refusal("json", maps).place == "sample 1 of the batch, column 'x'"


def test_the_columns_of_a_batch_are_checked() -> None:
    encoder = Encoder(Schema.from_columns({"a": "int64", "b": "str"}))
    for batch, words in [
        (pa.table({"a": [1]}), "lacks columns"),
        (pa.table({"a": [1], "b": ["x"], "c": [1]}), "unknown columns"),
        (pa.table([[1], [2]], ["a", "a"]), "occurs twice"),
        ({"a": pa.array([1]), "b": ["x", "y"]}, "different lengths"),
        (pa.array([1]), "expected tabular Arrow data"),
    ]:
        with pytest.raises(SampleError, match=words):
            encode_batch(encoder, batch)


def test_a_later_chunk_names_the_sample_of_the_whole_batch() -> None:
    texts = pa.chunked_array([["a"] * 3000, ["b", None]])
    assert refusal("str", texts).place == "sample 3001 of the batch, column 'x'"
