"""Conditions choose the samples that three-valued logic says, row by row, and read no heap."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.base.process import Counter, Counters, work_for
from mdsx.datasets import excerpt_of
from tools.servers.s3 import S3Server

N = 240
COLUMNS = {
    "label": "int8",
    "big": "int64",
    "u": "uint64",
    "score": "float32",
    "exact": "float64",
    "half": "float16",
    "ok": "bool",
    "tokens": "uint16[*]",
    "text": "str?",
    "maybe": "int32?",
    "two words": "uint8",
}
EDGES = [-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]
FLOATS = [math.nan, math.inf, -math.inf, -0.0, 0.1, 0.9, 1.0, 3.0, 2.0**53, 16777216.0]

Row = dict[str, Any]


def row(number: int) -> Row:
    return {
        "label": number % 7 - 3,
        "big": EDGES[number % len(EDGES)],
        "u": abs(EDGES[number * 3 % len(EDGES)]) * 2 % 2**64,
        "score": float(np.float32(FLOATS[number % len(FLOATS)])),
        "exact": FLOATS[number * 7 % len(FLOATS)],
        "half": float(np.float16(number % 10 / 10)),
        "ok": number % 3 == 0,
        "tokens": [1] * (number % 11),
        "text": None if number % 5 == 0 else "é" * (number % 4),
        "maybe": None if number % 4 == 0 else number % 6,
        "two words": number % 256,
    }


ROWS = [row(number) for number in range(N)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some ten shards."""
    folder: Path = tmp_path_factory.mktemp("where") / "data"
    with mdsx.Writer(folder, COLUMNS, shard_size=4000) as out:
        for each in ROWS:
            out.write(each)
    return folder


@pytest.fixture(scope="module")
def data(folder: Path) -> mdsx.Dataset:
    return mdsx.Dataset(folder)


def chosen(data: mdsx.Dataset, condition: str) -> list[int]:
    """Return the numbers, in `data`, of the samples that a condition chooses."""
    found, numbers = data.filter(condition), list[int]()
    at = 0
    everything = [repr(sample) for sample in data]
    for sample in found:
        at = everything.index(repr(sample), at)
        numbers.append(at)
        at += 1
    return numbers


def expected(data: mdsx.Dataset, is_chosen: Callable[[Row], bool | None]) -> str:
    return data.select([number for number, each in enumerate(ROWS) if is_chosen(each) is True]).fingerprint


# --- what a condition means


class Meaning(NamedTuple):
    """A condition, and what it is for a row: True, False or None, if it is unknown."""

    text: str
    of: Callable[[Row], bool | None]


COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
INTEGERS = ["label", "big", "u", "two words"]
DTYPES: dict[str, Any] = {"score": np.float32, "exact": np.float64, "half": np.float16}


def name(column: str) -> str:
    return column if column.isidentifier() else f'"{column}"'


def as_stored(column: str, number: float) -> Any:
    """Return a number as it is compared with a column: rounded to its type, if it is written as a float."""
    if column not in DTYPES or not isinstance(number, float):
        return number
    with np.errstate(over="ignore"):
        rounded = float(DTYPES[column](number))
    return number if math.isinf(rounded) else rounded


literals = st.one_of(
    st.sampled_from([*EDGES, 2**64, -(2**70), 3, 5, 16777217, 10**30]),
    st.sampled_from([0.1, 0.9, 1.0, 2.5, -0.5, 1e39, 2.0**53, 1e-300, 65519.0, 65520.0]),
)
columns = st.sampled_from([*INTEGERS, *DTYPES])


@st.composite
def comparisons(draw: st.DrawFn) -> Meaning:
    column, sign, number = draw(columns), draw(st.sampled_from([*COMPARES])), draw(literals)
    compare, against = COMPARES[sign], as_stored(column, number)
    if draw(st.booleans()):
        return Meaning(f"{name(column)} {sign} {number!r}", lambda each: compare(each[column], against))
    return Meaning(f"{number!r}{sign}{name(column)}", lambda each: compare(against, each[column]))


@st.composite
def pairs(draw: st.DrawFn) -> Meaning:
    kind = draw(st.sampled_from([[*INTEGERS, "tokens", "text"], [*DTYPES], ["label", "score", "exact", "tokens"]]))
    one, other, sign = draw(st.sampled_from(kind)), draw(st.sampled_from(kind)), draw(st.sampled_from([*COMPARES]))
    compare = COMPARES[sign]

    def shown(column: str) -> str:
        return f"length({column})" if column in ("tokens", "text") else name(column)

    def value(each: Row, column: str) -> Any:
        if column == "text":
            return len((each["text"] or "").encode())
        return len(each["tokens"]) if column == "tokens" else each[column]

    return Meaning(f"{shown(one)} {sign} {shown(other)}", lambda each: compare(value(each, one), value(each, other)))


@st.composite
def lists(draw: st.DrawFn) -> Meaning:
    column, numbers = draw(columns), draw(st.lists(literals, min_size=1, max_size=5))
    against, negated = [as_stored(column, number) for number in numbers], draw(st.booleans())
    text = f"{name(column)} {'not ' if negated else ''}IN ({', '.join(map(repr, numbers))})"
    return Meaning(text, lambda each: any(each[column] == number for number in against) != negated)


@st.composite
def betweens(draw: st.DrawFn) -> Meaning:
    column, low, high = draw(columns), draw(literals), draw(literals)
    least, most, negated = as_stored(column, low), as_stored(column, high), draw(st.booleans())
    text = f"{name(column)} {'not ' if negated else ''}between {low!r} and {high!r}"
    return Meaning(text, lambda each: (least <= each[column] <= most) != negated)


others = st.sampled_from(
    [
        Meaning("ok", lambda each: each["ok"]),
        Meaning("ok = False", lambda each: not each["ok"]),
        Meaning("TRUE != ok", lambda each: not each["ok"]),
        Meaning("ok in (true)", lambda each: each["ok"]),
        Meaning("text is null", lambda each: each["text"] is None),
        Meaning("maybe IS NOT NULL", lambda each: each["maybe"] is not None),
        Meaning("label is null", lambda each: False),
    ]
)


def negation(one: Meaning) -> Meaning:
    def of(each: Row) -> bool | None:
        found = one.of(each)
        return None if found is None else not found

    return Meaning(f"not ({one.text})", of)


def conjunction(parts: list[Meaning]) -> Meaning:
    def of(each: Row) -> bool | None:
        found = [part.of(each) for part in parts]
        return False if False in found else None if None in found else True

    return Meaning(" and ".join(f"({part.text})" for part in parts), of)


def disjunction(parts: list[Meaning]) -> Meaning:
    def of(each: Row) -> bool | None:
        found = [part.of(each) for part in parts]
        return True if True in found else None if None in found else False

    return Meaning(" or ".join(f"({part.text})" for part in parts), of)


def joined(simple: st.SearchStrategy[Meaning]) -> st.SearchStrategy[Meaning]:
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            inner.map(negation),
            st.lists(inner, min_size=2, max_size=3).map(conjunction),
            st.lists(inner, min_size=2, max_size=3).map(disjunction),
        ),
        max_leaves=5,
    )


@given(joined(st.one_of(comparisons(), pairs(), lists(), betweens(), others)))
def test_a_condition_chooses_as_rows_one_by_one_do(data: mdsx.Dataset, meaning: Meaning) -> None:
    assert data.filter(meaning.text).fingerprint == expected(data, meaning.of), meaning.text


def test_and_binds_closer_than_or_and_not_closest(data: mdsx.Dataset) -> None:
    found = data.filter("label = 3 or label = 2 and not ok or label = 1")
    assert found.fingerprint == expected(
        data, lambda each: each["label"] == 3 or (each["label"] == 2 and not each["ok"]) or each["label"] == 1
    )


def test_a_decimal_finds_what_was_written_as_it(tmp_path: Path) -> None:
    types = ["float16", "float32", "float64", "bfloat16"]
    columns = {name: name for name in types}
    with mdsx.Writer(tmp_path / "data", columns) as out:
        for value in (0.1, 0.9, 0.5):
            out.write(dict.fromkeys(types, value))
    data = mdsx.Dataset(tmp_path / "data")
    for column in types:
        assert chosen(data, f"{column} = 0.9") == [1]
        assert chosen(data, f"{column} >= 0.9") == [1]
        assert chosen(data, f"{column} < 0.9") == [0, 2]
        assert chosen(data, f"{column} in (0.1, 0.5)") == [0, 2]


def test_integers_are_compared_with_floats_as_real_numbers(tmp_path: Path) -> None:
    values = [1.0, 2.0**24, math.inf, -math.inf, math.nan]
    with mdsx.Writer(tmp_path / "data", {"id": "int64", "score": "float32"}) as out:
        for number, value in enumerate(values):
            out.write({"id": number, "score": value})
    data = mdsx.Dataset(tmp_path / "data")
    for number in (2**24 + 1, 2**24, 10**39, -(10**39), 10**399, 1):
        for sign, compare in COMPARES.items():
            found = [int(each["id"]) for each in data.filter(f"score {sign} {number}")]
            # Python compares integers with floats exactly.
            assert found == [at for at, value in enumerate(values) if compare(value, number)], (sign, number)


# --- what it is combined with


def test_a_condition_on_a_selection_chooses_among_its_samples(data: mdsx.Dataset) -> None:
    some = data.select(range(0, N, 3)).filter("label > 0")
    assert (
        some.fingerprint == data.select([number for number in range(0, N, 3) if ROWS[number]["label"] > 0]).fingerprint
    )
    assert (
        some.filter("ok").select(0, 3).fingerprint
        == data.filter("ok and label > 0")
        .filter('"two words" < 256')
        .select(range(len(some.filter("ok"))))
        .select([0, 1, 2])
        .fingerprint
    )
    train, valid = data.split(0.5, 0.5)
    assert len(train.filter("ok")) + len(valid.filter("ok")) == len(data.filter("ok"))


def test_zipped_datasets_are_filtered_by_columns_of_both(data: mdsx.Dataset, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "more", {"rank": "int32", "words": "str"}, shard_size=1500) as out:
        for number in range(N):
            out.write({"rank": number % 9, "words": "x" * (number % 13)})
    both = mdsx.zip(data, mdsx.Dataset(tmp_path / "more"))
    found = both.filter("rank > label and length(words) >= length(tokens) and not ok")
    want = [
        number
        for number, each in enumerate(ROWS)
        if number % 9 > each["label"] and number % 13 >= len(each["tokens"]) and not each["ok"]
    ]
    assert found.fingerprint == both.select(want).fingerprint


def test_columns_have_the_names_and_values_that_they_are_read_with(folder: Path) -> None:
    data = mdsx.Dataset(folder, columns={"kind": "label", "maybe": "maybe"}, fill={"maybe": (7, "there")})
    whole = mdsx.Dataset(folder)
    assert data.filter("kind = 3").fingerprint == whole.filter("label = 3").fingerprint
    assert data.filter("there").fingerprint == whole.filter("maybe is not null").fingerprint
    assert len(data.filter("maybe is null or there is null")) == 0
    with pytest.raises(mdsx.UsageError, match="there is no such column"):
        data.filter("label = 3")


def test_bytes_that_are_read_as_items_are_counted_as_items(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"raw": "bytes"}) as out:
        for number in range(5):
            out.write({"raw": bytes(2 * number)})
    data = mdsx.Dataset(tmp_path / "data", columns={"tokens": mdsx.Cast("raw", "uint16[*]")})
    assert len(data.filter("length(tokens) >= 3")) == 2


def test_a_file_of_lengths_changes_nothing(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "uint16[*]"}, shard_size=2000) as out:
        for number in range(200):
            out.write({"tokens": [1] * (number % 17)})
    without = mdsx.Dataset(tmp_path / "data").filter("length(tokens) > 8").fingerprint
    mdsx.write_lengths(tmp_path / "data", "tokens")
    assert mdsx.Dataset(tmp_path / "data").filter("length(tokens) > 8").fingerprint == without
    damaged = bytearray((tmp_path / "data" / "_lengths" / "tokens.u32").read_bytes())
    damaged[100] ^= 1
    (tmp_path / "data" / "_lengths" / "tokens.u32").write_bytes(damaged)
    with pytest.warns(UserWarning, match="the lengths are damaged"):
        assert mdsx.Dataset(tmp_path / "data").filter("length(tokens) > 8").fingerprint == without


# --- what is read


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_no_heap_is_read(s3: S3Server, tmp_path: Path, compression: Any) -> None:
    url, random = s3.make_bucket(f"where-{compression}".lower()) + "/data", np.random.default_rng(0)
    with mdsx.Writer(url, {"label": "int32", "blob": "bytes"}, shard_size=2**23, compression=compression) as out:
        for number in range(300):
            out.write({"label": number % 3, "blob": random.bytes(20_000)})
    data, counters = mdsx.Dataset(url, cache=mdsx.Cache(tmp_path)), Counters()
    work_for(counters)
    try:
        found = data.filter("label = 2 and length(blob) = 20000")
    finally:
        work_for(None)
    assert found.fingerprint == data.select(range(2, 300, 3)).fingerprint
    assert 0 < counters.totals[Counter.DOWNLOADED] < 3_000_000  # of 6 MB: frames have 1 MiB


def test_damaged_rows_are_an_error(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"label": "int32", "blob": "bytes"}) as out:
        for number in range(50):
            out.write({"label": number, "blob": bytes(number)})
    path = tmp_path / "data" / "shard.00000.mdsx"
    raw = bytearray(path.read_bytes())
    raw[excerpt_of(mdsx.Dataset(tmp_path / "data")).shards.schema.rows_offset] ^= 1
    path.write_bytes(raw)
    with pytest.raises(mdsx.CorruptError, match="the rows are damaged"):
        mdsx.Dataset(tmp_path / "data").filter("label = 2")


# --- other formats


def test_parquet_has_nulls(tmp_path: Path) -> None:
    values = [1, None, 3, None, 5, 0]
    table = pa.table(
        {"id": range(6), "a": pa.array(values, pa.int32()), "b": [0.5] * 6, "text": ["x", None, "", "y", "z", None]}
    )
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=2)
    mdsx.index_parquet(tmp_path)
    data = mdsx.Dataset(tmp_path)

    def numbers(condition: str) -> list[int]:
        return [int(sample["id"]) for sample in data.filter(condition)]

    assert numbers("a > 2") == [2, 4]
    assert numbers("not a > 2") == [0, 5]
    assert numbers("a > 2 or a is null") == [1, 2, 3, 4]
    assert numbers("a > 2 or b = 0.5") == [0, 1, 2, 3, 4, 5]
    assert numbers("a != a") == []
    assert numbers("a in (1, 3)") == [0, 2]
    assert numbers("a not in (1, 3)") == [4, 5]
    assert numbers("text is null and a is null") == [1]
    assert numbers("length(text) = 0") == [1, 2, 5]
    assert numbers("a between 1 and 3 and not (text is null)") == [0, 2]


# --- what is refused


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("", "expected a column or a number, found the end"),
        ("label", "compare column 'label' with a number"),
        ("label = 'cat'", "text is never stored at a fixed size"),
        ("text = 3", r"length\(text\) is the number of its bytes"),
        ("tokens = 3", r"length\(tokens\) is the number of its items"),
        ("maybe = 3", r"int32\?', which is nullable\); ds.filter\(function, input_columns=\['maybe'\]\)"),
        ("label = true", "bools and numbers"),
        ("ok = 1", "bools and numbers"),
        ("ok < true", "has bools, which only = and != can compare"),
        ("ok > label", "bools and numbers"),
        ("label in (1, true)", "bools and numbers"),
        ("u < score", "cannot be compared exactly"),
        ("big = exact", "cannot be compared exactly"),
        ("other = 3", "column 'other': there is no such column"),
        ("length(other) = 3", "column 'other': there is no such column"),
        ("length(score) = 3", "has no lengths"),
        ("1 = 1", "a column, or its length, in each comparison"),
        ("1 in (1)", "a column or its length"),
        ("length(text) is null", "the length of null is 0"),
        ("label + 1 = 3", "no arithmetic"),
        ("label = 3 label = 4", 'expected "and", "or", or the end'),
        ("(label) = 3", 'expected "and", "or", or the end'),
        ("(label = 3", r'expected "\)", found the end'),
        ("label = ", "found the end"),
        ("label in ()", "expected a number"),
        ("label in (other, 2)", "expected a number, found other"),
        ("label not 3", '"in" or "between"'),
        ("label is 3", 'expected "null"'),
        ("label = 1e999", "a float64 can hold"),
        ("label = 1_000", "expected"),
        ("label = 0x10", "expected"),
        ("label = " + "9" * 500, "at most 400 characters"),
        ("not " * 100 + "ok", "at most 64 levels"),
        ("(" * 100 + "ok", "at most 64 levels"),
        ("label = 3;", "found ;"),
        ("label = \N{DIGIT THREE}\N{SUPERSCRIPT TWO}", "found"),
        ("x" * (2**20 + 1), "too long"),
        ("\x00", "found"),
        ('"label = 3', 'found "'),
    ],
)
def test_what_is_no_condition_is_refused(data: mdsx.Dataset, condition: str, says: str) -> None:
    with pytest.raises(mdsx.UsageError, match=says):
        data.filter(condition)


def test_a_condition_is_refused_before_anything_is_read(folder: Path, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"u": "uint64", "score": "float32", "text": "str"}) as out:
        out.write({"u": 1, "score": 1.0, "text": ""})
    (tmp_path / "data" / "shard.00000.mdsx").unlink()
    data = mdsx.Dataset(tmp_path / "data")
    for condition in ("u < score", "text = 3", "nothing = 3"):
        with pytest.raises(mdsx.UsageError):
            data.filter(condition)


def test_a_condition_has_no_arguments_of_functions(data: mdsx.Dataset) -> None:
    with pytest.raises(mdsx.UsageError, match="takes no input_columns"):
        data.filter("ok", input_columns=["ok"])  # type: ignore[call-overload]


@given(st.text(st.sampled_from("label ok()=<>!,.\"0123notandorinbetweenisnull-+eE'\n"), max_size=30))
def test_any_text_is_a_condition_or_a_usage_error(data: mdsx.Dataset, text: str) -> None:
    with suppress(mdsx.UsageError):
        assert len(data.filter(text)) <= N
