"""Queries of Polars and DuckDB over a dataset: the rows of a query over all samples, without reading them all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx

COLUMNS = {
    "small": "int8", "large": "uint64", "id": "int64", "half": "bfloat16", "score": "float32", "exact": "float64?",
    "good": "bool", "ok": "bool?", "text": "str?", "tokens": "uint16[*]?", "json": "json?", "a b": "int32?",
}  # fmt: skip
SMALL = [-128, -1, 0, 1, 2, 127]
LARGE = [0, 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1]
FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.9, 1.0, 1.5, 16_777_216.0, -3.4e38]
SEEDS = 211


def row(number: int) -> dict[str, Any]:
    """Return a sample; the values of columns repeat at different distances, so that all pairs of values meet."""
    return {
        "small": SMALL[number % 6],
        "large": LARGE[number // 6 % 6],
        "id": number,
        "half": 0.90234375 if number % 2 else 2.0,
        "score": FLOATS[number % 10],
        "exact": [*FLOATS, None][number // 10 % 11],
        "good": number % 8 < 4,
        "ok": [True, False, None][number % 3],
        "text": None if number % 5 == 0 else "x" * (number % 4),
        "tokens": None if number % 4 == 0 else np.arange(number % 6),
        "json": [None, 1, {"a": 2}][number % 3],
        "a b": [*SMALL, None][number % 7],
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with mdsx.Writer(folder, COLUMNS, shard_size=4000) as out:
        for number in range(SEEDS):
            out.write(row(number))
    return folder


def compared(column: pl.Expr, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pl.Expr]:
    names = ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "eq_missing"]
    return st.builds(lambda name, value: getattr(column, name)(value), st.sampled_from(names), values)


def between(column: pl.Expr, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pl.Expr]:
    closed: Any = st.sampled_from(["both", "left", "right", "none"])
    return st.builds(lambda low, high, closed: column.is_between(low, high, closed), values, values, closed)


C = pl.col
INTEGERS = st.sampled_from([*SMALL, *LARGE, 200, 2**70])
REALS = st.sampled_from([*FLOATS, 0.8999999, 1e300, 1, 16_777_217]) | st.floats(width=32)
TESTS = st.one_of(
    *(compared(C(name), INTEGERS | REALS) for name in ("small", "large", "id", "a b")),
    *(
        compared(C(name), REALS | REALS.map(lambda real: pl.lit(real, pl.Float64)))
        for name in ("half", "score", "exact")
    ),
    between(C("id"), INTEGERS),
    between(C("score"), st.sampled_from(FLOATS)),
    between(C("a b"), st.sampled_from(SMALL)),
    compared(C("tokens").list.len(), st.integers(0, 6)),
    compared(C("text").str.len_bytes(), st.integers(0, 4)),
    compared(C("ok"), st.booleans()),
    compared(C("good"), st.booleans()),
    compared(C("text"), st.sampled_from(["", "xx"])),
    compared(C("small"), st.just(C("a b"))),
    st.sampled_from([C(name).is_null() for name in COLUMNS] + [C(name).is_not_null() for name in COLUMNS]),
    st.sampled_from(
        [C("ok"), C("good"), C("score").is_nan(), C("small").is_in([1, None]), C("id").is_in([3, 5]), pl.lit(True)]
    ),
)
PREDICATES = st.recursive(
    TESTS,
    lambda parts: st.one_of(
        parts.map(lambda one: ~one),
        parts.map(lambda one: one.is_null()),
        st.lists(parts, min_size=2, max_size=4).map(lambda several: reduce(lambda one, two: one & two, several)),
        st.lists(parts, min_size=2, max_size=4).map(lambda several: reduce(lambda one, two: one | two, several)),
        st.tuples(parts, parts).map(lambda pair: pair[0].xor(pair[1])),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def parquet(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same samples in Parquet files, where conditions compare columns with nulls too."""
    folder = tmp_path_factory.mktemp("parquet")
    table = mdsx.Dataset(data).take(range(SEEDS), as_arrow=True)
    for start in range(0, SEEDS, 50):
        pq.write_table(table.slice(start, 50), folder / f"{start:03}.parquet")
    mdsx.index_parquet(folder)
    return folder


@given(
    stored=st.sampled_from(["data", "parquet"]),
    predicate=PREDICATES,
    head=st.integers(0, 300),
    engine=st.sampled_from(["in-memory", "streaming"]),
)
def test_a_query_has_the_rows_of_one_over_all_samples(
    data: Path, parquet: Path, stored: str, predicate: pl.Expr, head: int, engine: Any
) -> None:
    dataset = mdsx.Dataset(data if stored == "data" else parquet)
    whole: Any = pl.from_arrow(dataset.take(range(SEEDS), as_arrow=True))
    frame = dataset.to_polars()
    queries: list[Callable[[Any], Any]] = [
        lambda frame: frame.filter(predicate),
        lambda frame: frame.filter(predicate).select("id").head(head),
        lambda frame: frame.head(head).filter(predicate).select("text", n="id"),
        lambda frame: frame.filter(predicate).select(pl.len()),
    ]
    for query in queries:
        found, expected = query(frame).collect(engine=engine), query(whole.lazy()).collect()
        assert found.schema == expected.schema
        assert found.equals(expected)


@pytest.mark.parametrize("name", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"])
@pytest.mark.parametrize("column", ["score", "exact", "small", "a b"])
def test_each_comparison_alone_has_the_rows_of_polars(parquet: Path, column: str, name: str) -> None:
    """NaN, infinities and nulls are among the values, and those compared with are among them."""
    frame = mdsx.Dataset(parquet).to_polars()
    whole = frame.collect()
    for value in (0.0, 0.9, 1.5, math.inf, math.nan) if column in ("score", "exact") else (-128, 0, 127):
        test = getattr(C(column), name)(value)
        for predicate in (test, ~test):
            assert frame.filter(predicate).collect().equals(whole.filter(predicate))


def test_a_frame_has_the_types_of_arrow_and_every_sample(data: Path) -> None:
    dataset = mdsx.Dataset(data).select(range(0, SEEDS, 2))
    found = dataset.to_polars().collect()
    assert found.equals(pl.from_arrow(dataset.to_batches()))
    assert found.schema["tokens"] == pl.List(pl.UInt16)
    assert dataset.select(0, 0).to_polars().collect().equals(found.head(0))


def damaged(data: Path, folder: Path) -> mdsx.Dataset:
    """Return a copy of a dataset in which the last text is damaged."""
    folder.mkdir()
    for file in data.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    last = sorted(folder.glob("shard.*"))[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1  # the heap is at the end
    last.write_bytes(content)
    return mdsx.Dataset(folder)


MATCHING = [
    C("id") < 9,
    ~(C("id") >= 9),
    C("id").is_between(1, 8),
    (C("id") < 9) & (C("text") == "x"),
    (C("id") < 9) & (C("ok") | ~C("ok") | C("ok").is_null()),
    (C("id") < 9) & ~((C("ok") & C("good")) | C("text").is_null()),
    (C("id") == 1) | ((C("id") < 9) & (C("text") == "x")),
    (C("id") < 9) & (C("tokens").list.len() > 0) & (C("text").str.len_bytes() >= 1),
]


@pytest.mark.parametrize("predicate", MATCHING, ids=str)
def test_samples_that_cannot_match_are_not_read(data: Path, tmp_path: Path, predicate: pl.Expr) -> None:
    dataset = damaged(data, tmp_path / "copy")
    found = dataset.to_polars().filter(predicate).select("id").collect()["id"].to_list()
    assert found
    assert found == mdsx.Dataset(data).to_polars().collect().filter(predicate)["id"].to_list()
    with pytest.raises(Exception, match=r"damaged|corrupt|checksum"):
        dataset.to_polars().filter(C("text") == "x").collect()


def test_duckdb_and_pandas_read_a_part(data: Path, tmp_path: Path) -> None:
    frame = damaged(data, tmp_path / "copy").to_polars()
    rows = duckdb.sql("select id, text from frame where id between 4 and 6 and text is not null")
    assert rows is not None
    assert rows.fetchall() == [(4, ""), (6, "xx")]
    assert frame.filter(C("id") < 3).select("id").collect().to_pandas()["id"].tolist() == [0, 1, 2]


def test_only_the_columns_of_a_query_are_read(data: Path) -> None:
    plan = mdsx.Dataset(data).to_polars().filter(C("id") < 3).select("text").explain()
    assert re.search(r"PROJECT 2/12 COLUMNS", plan)
