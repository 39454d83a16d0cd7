"""JSON lines become a dataset: the same values in the same order, or an error that names file, line and column."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import zstandard

import mdsx
from mdsx import CorruptError, MdsxError, SampleError, UnsupportedError, UsageError
from mdsx.storage import open_storage
from mdsx.transfer.converting import line_files, lines
from mdsx.transfer.converting.json_lines import JsonLines, open_source
from mdsx.transfer.converting.json_objects import ObjectReader
from mdsx.transfer.converting.source import Block, Request, Row
from tests.transfer.converting.golden.write_jsonl import FOLDER, ROWS

JPEG = b"\xff\xd8\xff\xe0picture"


def opened(*files: Path, skip: bool = False, **options: Any) -> JsonLines:
    own = {name: options.pop(name) for name in ("nan",) if name in options}
    given = {"declared": {}, "rename": {}, "drop": [], **options}
    return open_source(Request([str(file) for file in files], skip=skip, options=None, **given), **own)


def write(path: Path, *found: object) -> Path:
    """Write lines: objects, or texts as they are."""
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in found]
    path.write_bytes(b"".join(text + b"\n" for text in texts))
    return path


def read(source: JsonLines, columns: Mapping[str, str]) -> Iterator[dict[str, Any] | MdsxError]:
    """Yield the samples of all units."""
    for unit in source.units:
        counted: list[int] = []
        for item in source.read(unit, columns, counted.append):
            if isinstance(item, Block):
                rows = [*zip(*item.columns.values(), strict=True)]
                assert len(rows) == item.samples
                yield from (dict(zip(item.columns, row, strict=True)) for row in rows)
            else:
                yield dict(item.values) if isinstance(item, Row) else item
        assert unit.size <= sum(counted) <= unit.size + 1


def errors(path: Path, columns: Mapping[str, str], **options: Any) -> list[str]:
    return [str(item) for item in read(opened(path, skip=True, **options), columns) if isinstance(item, MdsxError)]


# --- columns


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False], "bool"),
        ([1, -2], "int64"),
        ([1, 2.5], "float64"),
        ([1, None], "int64?"),
        (["a"], "str"),
        ([[1], []], "int64[*]"),
        ([[1, 2.5], None], "float64[*]?"),
        ([["a"]], "str[*]"),
        ([[1, None]], "json"),
        ([[[1]]], "json"),
        ([[]], "json"),
        ([{"a": 1}, None], "json?"),
        ([1, "a"], "json"),
        ([True, 1], "json"),
        ([None], "json?"),
    ],
)
def test_types_are_inferred_from_the_first_values(tmp_path: Path, values: list[object], kind: str) -> None:
    assert opened(write(tmp_path / "x.jsonl", *({"x": value} for value in values))).columns() == ({"x": kind}, [])


def test_a_key_that_is_absent_makes_its_column_nullable(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"b": 1}, {"a": 1, "b": 2})
    assert opened(path).columns()[0] == {"b": "int64", "a": "int64?"}


def test_options_name_declare_and_drop_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"a": 1, "b": 2, "c": 3, "d": {"e": [1, {"f": 1}]}})
    asked: Any = {"rename": {"n": "a"}, "drop": ["c", "d"], "declared": {"n": "int8", "late": "str?"}}
    columns, warnings = opened(path, **asked).columns()
    assert (columns, warnings) == ({"n": "int8", "b": "int64", "late": "str?"}, [])
    assert [*read(opened(path, **asked), columns)] == [{"n": 1, "b": 2, "late": None}]


def test_an_option_for_a_key_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"a": 1})
    for conflict, problem in (({"drop": ["a"]}, "dropped"), ({"rename": {"b": "a"}}, "renamed to 'b'; declare 'b'")):
        with pytest.raises(UsageError, match=f"column 'a' is declared, but {problem}"):
            opened(path, declared={"a": "int8"}, **conflict)
    _, warnings = opened(path, rename={"n": "b"}, drop=["c"]).columns()
    assert [text.partition(": ")[2] for text in warnings] == [
        "--rename 'b': none of the first samples has this key",
        "--drop 'c': none of the first samples has this key",
    ]


@pytest.mark.parametrize("content", [b"", b"\n \n", b"{}\n"])
def test_files_without_samples_or_columns_are_errors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=r"there is no sample|there are no columns"):
        opened(tmp_path / "x.jsonl").columns()


# --- lines


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("compression", ["plain", "gz", "zst"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n", b"\n \t\n"])
def test_lines_are_read_whatever_ends_them(tmp_path: Path, compression: str, ending: bytes) -> None:
    content = b"\xef\xbb\xbf" + ending.join(b'{"x": %d}' % number for number in range(20))
    (tmp_path / "x.json").write_bytes(COMPRESS[compression](content))
    assert [*read(opened(tmp_path / "x.json"), {"x": "int64"})] == [{"x": number} for number in range(20)]


def test_units_have_each_line_once_wherever_they_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines shorter and longer than a unit, empty ones, and newlines just before and after each cut."""
    monkeypatch.setattr(line_files, "_TAIL", 7)
    sizes = random.Random(1).choices([0, 1, 5, 30, 100], k=30)
    path = write(tmp_path / "x.jsonl", *({"x": "a" * size} if size else b"" for size in sizes))
    wanted = [{"x": "a" * size} for size in sizes if size]
    for unit in (3, 16, 33, 101, 1000):
        monkeypatch.setattr(line_files, "UNIT", unit)
        assert [*read(opened(path), {"x": "str"})] == wanted


def test_a_line_in_the_middle_of_a_file_is_named_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "UNIT", 16)
    found = [{"x": number} if number % 7 else b"wrong" for number in range(1, 30)]
    path = write(tmp_path / "x.jsonl", *found)
    source = opened(path)
    places = [item.place for item in read(source, {"x": "int64"}) if isinstance(item, MdsxError)]
    offsets = [sum(len(line) + 1 for line in path.read_bytes().split(b"\n")[:number]) for number in (6, 13, 20, 27)]
    numbered = [f"line {number}, offset {offset}" for number, offset in zip((7, 14, 21, 28), offsets, strict=True)]
    assert places == numbered
    assert [text.split(": ")[1] for text in errors(path, {"x": "int64"})] == [f"offset {offset}" for offset in offsets]


def test_a_line_that_is_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    monkeypatch.setattr(lines, "_PIECE", 10)
    path = write(tmp_path / "x.jsonl", {"x": "a"}, {"x": "b" * 200}, {"x": "c"}, {"x": "d" * 200})
    for unit in (2**20, 64):
        monkeypatch.setattr(line_files, "UNIT", unit)
        monkeypatch.setattr(line_files, "_TAIL", 10)
        found = [*read(opened(path, skip=True), {"x": "str"})]
        assert [str(item).partition("line is ")[2][:8] if isinstance(item, MdsxError) else item for item in found] == [
            {"x": "a"},
            "too long",
            {"x": "c"},
            "too long",
        ]


def test_damage_in_a_compressed_file_follows_the_lines_before_it(tmp_path: Path) -> None:
    noise = random.Random(1)
    content = b"".join(b'{"x":"%s"}\n' % noise.randbytes(50).hex().encode() for _ in range(2000))
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(content)[:-20_000])
    *samples, error = read(opened(tmp_path / "x.jsonl.gz"), {"x": "str"})
    assert isinstance(error, CorruptError)
    assert str(error) == f"{tmp_path}/x.jsonl.gz: after line {len(samples)}: gzip stream is truncated"
    assert samples == [json.loads(line) for line in content.splitlines()[: len(samples)]]
    assert samples


def test_other_compressions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "UNIT", 8)
    (tmp_path / "x.jsonl.bz2").write_bytes(b"BZh91AY&SYxxxxxx")
    with pytest.raises(UnsupportedError, match=r"x\.jsonl\.bz2: is bzip2"):
        opened(tmp_path / "x.jsonl.bz2")


# --- values


SCHEMA = {"a": "int64", "f": "float32?", "s": "str?", "j": "json?", "i": "bytes?", "n": "float64[*]?"}
GOOD = [
    {"a": 1, "f": 0.5, "s": "x", "j": {"k": [1, {"l": "\":"}]}, "i": "aGk=", "n": [1, 2.5]},
    {"a": -(2**63), "f": 3, "s": ":)", "j": [10**30, "\\\":", {"": None}], "n": []},
    {"a": 2, "s": "tail\\", "j": "\\", "i": None},
]  # fmt: skip


def test_blocks_and_rows_give_the_values_of_the_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", *GOOD)
    wanted = [dict.fromkeys(SCHEMA) | row for row in GOOD]
    wanted[0]["i"] = b"hi"
    assert [*read(opened(path), SCHEMA)] == wanted
    write(path, *GOOD, b"wrong")
    assert [*read(opened(path, skip=True), SCHEMA)][:3] == wanted


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": true}', "column 'a': does not fit int64 (found bool True); --column a=json would accept it"),
        (b'{"a": 1.0}', "column 'a': does not fit int64 (found float 1.0); --column a=float64 would accept it"),
        (b'{"a": "1"}', "column 'a': does not fit int64 (found str '1'); --column a=json would accept it"),
        (b'{"a": 1, "s": 2}', "column 's': does not fit str? (found int 2); --column 's=json?' would accept it"),
        (b'{"a": 1, "i": "!"}', "column 'i': does not fit bytes? (expected base64 text, found str '!')"),
        (b'{"a": "\\ud800"}', r"column 'a': does not fit int64 (found str '\ud800')"),
        (b'{"a": 1, "i": "\\ud800"}', r"column 'i': does not fit bytes? (expected base64 text, found str '\ud800')"),
        (b'{"a": 1, "n": ["\\ud800"]}', "column 'n': does not fit float64[*]? (found list)"),
        (b'{"a": 1, "n": [0, "x"]}', "column 'n': does not fit float64[*]? (found list, at [1])"),
        (b'{"s": "x"}', "column 'a': the key is missing; --column 'a=int64?' makes absent ones null"),
        (b'{"a": 1, "b c": []}', "key 'b c': no column has this key (found list); --column 'b c=json?' accepts it"),
        (b'{"a": 1, "a": 1}', "the line is not valid JSON: duplicate key 'a'; --on-error skip"),
        (b'{"a": 1, "j": [{"k": 1, "k": 2}]}', "duplicate key 'k'"),
        (b'{"a": 1, "j": {"k\\\\": 1, "k\\\\": 2}, "s": "\\":"}', "duplicate key"),
        (b'{"a" : 1, "s": "\\":", "a":1}', "duplicate key 'a'"),
        (b'{"a": 1, "f": NaN}', "NaN and Infinity are not JSON (found NaN); --nan null"),
        (b'{"a": 1, "f": 1e999}', "NaN and Infinity are not JSON (found 1e999)"),
        (b'{"a": 1', "the line is not JSON: Expecting ',' delimiter, at character 7"),
        (b'{"a": 1}{"a": 2}', "the line is not JSON: Extra data, at character 8"),
        (b"[", "the line is not JSON: Expecting value, at character 1 (found b'['); one object per line: `jq -c .`"),
        (b'[{"a": 1}]', "the line is not a JSON object (found list); one object per line"),
        (b"null", "the line is not a JSON object (found None)"),
        (b'{"a": 1, "s": "\xff"}', "the line is not UTF-8 (found byte 0xff at byte 15 of the line)"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
    ],
)
def test_a_line_that_does_not_fit_is_an_error_that_names_it(tmp_path: Path, line: bytes, problem: str) -> None:
    path = write(tmp_path / "x.jsonl", GOOD[0], b"", line, GOOD[1])
    (found,) = errors(path, SCHEMA)
    assert found.startswith(f"{path}: line 3")
    assert problem in found
    assert len([*read(opened(path, skip=True), SCHEMA)]) == 3


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (2**63, "int64", "--column x=uint64 would accept it"),
        (2**64, "int64", "--column x=json would accept it"),
        (300, "uint8", "--column x=int64 would accept it"),
        (None, "int64", "--column 'x=int64?' would accept it"),
        (2**53 + 1, "float64", "--column x=json would accept it"),
        ([1, 2], "float32[3]", "--column 'x=float32[*]' would accept it"),
        (base64.b64encode(JPEG).decode(), "png", "--column x=bytes would accept it"),
    ],
)
def test_a_value_that_the_writer_refuses_names_the_type_that_takes_it(
    tmp_path: Path, value: object, kind: str, problem: str
) -> None:
    write(tmp_path / "x.jsonl", {"x": value})
    with pytest.raises(SampleError) as raised:
        mdsx.convert("jsonl", str(tmp_path / "x.jsonl"), tmp_path / "out", columns={"x": kind})
    assert str(raised.value).startswith(f"{tmp_path}/x.jsonl: line 1, column 'x': does not fit {kind}")
    assert str(raised.value).endswith(problem)


def test_nan_can_be_null(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"x": math.nan}, {"x": 1.5}, b'{"x": -1e999}')
    source = opened(path, nan="null")
    assert source.columns()[0] == {"x": "float64?"}
    assert [*read(source, {"x": "float64?"})] == [{"x": None}, {"x": 1.5}, {"x": None}]
    with pytest.raises(CorruptError, match=r"x\.jsonl: line 1: NaN and Infinity are not JSON .*--nan null"):
        opened(path).columns()


def mutated(line: bytes, noise: random.Random) -> bytes:
    """Return the line with a few bytes changed, repeated or left out."""
    for _ in range(noise.randrange(4)):
        at, size = noise.randrange(len(line)), noise.randrange(6)
        other = noise.choice(
            [b"", noise.choice([b'"', b":", b'":', b"\\", b",", b"1", b"{}", b" "]), line[at : at + 12]]
        )
        line = line[:at] + other + line[at + size :]
    return line


def test_a_block_is_read_only_as_its_rows_would_be() -> None:
    """Whatever a line holds, its block has the values that the line has by itself, or is refused."""
    noise, seen = random.Random(2), {True: 0, False: 0}
    reader = ObjectReader(SCHEMA, {}, ["d"], nan_null=False)
    good = [json.dumps(row).encode() for row in [*GOOD, {"d": {"x": 1}, **GOOD[2]}]]
    for _ in range(4000):
        line = mutated(noise.choice(good), noise).replace(b"\n", b"")
        try:
            wanted = reader.values(line) if line.strip() else None
        except MdsxError:
            wanted = None
        block = reader.block([line])
        if block is not None:
            assert [{name: repr(values[0]) for name, values in block.items()}] == [
                {name: repr(value) for name, value in (wanted or {}).items()}
            ], line
        seen[block is not None] += 1
    assert min(seen.values()) > 300


# --- files of other tools, and the whole conversion


@pytest.mark.parametrize(
    "name",
    [
        "pandas.jsonl.gz",
        "pandas.jsonl.zst",
        "polars.ndjson",
        "duckdb.json",
        "duckdb.json.gz",
        "duckdb.json.zst",
        "jq.jsonl",
    ],
)
def test_files_of_other_tools_are_read(tmp_path: Path, name: str) -> None:
    kinds = {"id": "int64", "text": "str?", "score": "float64", "tags": "str[*]", "numbers": "int64[*]", "at": "json"}
    assert mdsx.convert("jsonl", str(FOLDER / name), tmp_path / "out").columns == kinds
    found = [{**row, "numbers": row["numbers"].tolist()} for row in mdsx.Dataset(tmp_path / "out")]
    assert found == ROWS


def test_an_export_is_converted_back_to_the_same_samples(tmp_path: Path) -> None:
    columns = {"id": "uint64", "image": "jpeg?", "x": "float32[2]", "m": "msgpack", "t": "str[*]", "b": "bytes[*]"}
    rows: list[dict[str, Any]] = [
        {
            "id": 2**64 - 1,
            "image": JPEG,
            "x": [0.1, -3e38],
            "m": {"a": [1, None]},
            "t": ["é", ""],
            "b": [b"\0\xff", b""],
        },
        {"id": 0, "image": None, "x": [0.0, 1.0], "m": "x", "t": [], "b": []},
    ]
    with mdsx.Writer(tmp_path / "first", columns) as out:
        for row in rows:
            out.write(row)
    mdsx.export("jsonl", tmp_path / "first", tmp_path / "lines", compression="zstd")
    mdsx.convert("jsonl", f"{tmp_path}/lines/*.jsonl.zst", tmp_path / "again", columns=columns)
    first, again = ((tmp_path / name / "shard.00000.mdsx").read_bytes() for name in ("first", "again"))
    assert first == again


def large(folder: Path) -> Sequence[dict[str, Any]]:
    noise = random.Random(3)
    rows = [{"id": number, "text": noise.randbytes(noise.randrange(300)).hex()} for number in range(3000)]
    write(folder / "x.jsonl", *rows)
    return rows


def files(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_several_processes_and_a_resume_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "UNIT", 2**17)
    rows, path = large(tmp_path), str(tmp_path / "x.jsonl")
    options: Any = {"shard_size": "64KiB", "columns": {"text": "str"}}
    mdsx.convert("jsonl", path, tmp_path / "one", **options)
    mdsx.convert("jsonl", path, tmp_path / "two", num_workers=2, **options)

    class StopError(Exception):
        pass

    def stop(progress: mdsx.Progress) -> None:
        if progress.samples > 1000:
            raise StopError

    with pytest.raises(StopError):
        mdsx.convert("jsonl", path, tmp_path / "stopped", watch=stop, **options)
    assert not (tmp_path / "stopped" / "index.json").exists()
    mdsx.convert("jsonl", path, tmp_path / "stopped", **options)
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "stopped")
    assert [*islice(mdsx.Dataset(tmp_path / "one"), 10)] == rows[:10]
    assert len(mdsx.Dataset(tmp_path / "one")) == len(rows)


def test_remote_files_are_read_in_ranges(tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "UNIT", 2**17)
    rows = large(tmp_path)
    open_storage(s3_url, write=True).put("x.jsonl", (tmp_path / "x.jsonl").read_bytes())
    mdsx.convert("jsonl", f"{s3_url}/x.jsonl", tmp_path / "out", shard_size="64KiB")
    assert [*mdsx.Dataset(tmp_path / "out")] == rows


def test_skipped_lines_are_left_out_and_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"a": 1}, {"a": 2**70}, b"x", {"a": 3})
    problems: list[str] = []
    conversion = mdsx.convert(
        "jsonl",
        str(path),
        tmp_path / "out",
        columns={"a": "int64"},
        on_error="skip",
        watch=lambda progress: problems.extend(map(str, progress.problems)),
    )
    assert (conversion.samples, conversion.skipped) == (2, 2)
    assert [text.split(": ")[1] for text in problems] == ["line 2, column 'a'", "line 3"]
    assert [sample["a"] for sample in mdsx.Dataset(tmp_path / "out")] == [1, 3]


def test_keys_may_have_quotation_marks_and_backslashes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({'"a"': number, "b\\c": "x", "\n": 1} for number in range(3)))
    mdsx.convert("jsonl", path, tmp_path / "out", rename={"a": '"a"', "c": "b\\c"}, drop=["\n"])
    assert list(mdsx.Dataset(tmp_path / "out")) == [{"a": number, "c": "x"} for number in range(3)]


def test_a_key_that_cannot_name_a_column_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"a\0b": 1, "c": 2})
    with pytest.raises(
        UsageError, match=r"a\.jsonl: .*column name 'a\\x00b' holds the character .*--drop leaves it out"
    ):
        mdsx.convert("jsonl", path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert mdsx.convert("jsonl", [path], tmp_path / "out", drop=["a\0b"]).columns == {"c": "int64"}


# --- some of the keys


SOME = {"a": "str?", "b": "int32", "c": "json"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"a": "é", "b": 1, "c": {"x": [1]}, "d": {"a": 2}}, True),
        ({"b": 1, "c": None, "é": "a"}, True),
        ({"a": "x", "b": 1}, None),
        ({"a": None, "b": 2**31, "c": 1.5, "d": 2**70}, True),
        ({"a": '"a":', "b": 1, "c": '\\"a\\":'}, True),
        ({"a": "x", "b": True, "c": 1}, None),
        ({"a": "x", "c": 1}, None),
        (b'{"a": "x", "b" : 1, "c": 1}', True),
        (b'{"a": "x", "b": 1, "c": 1, "d": {"e": 1, "e": 2}}', None),
        (b'{"a": "x", "b": 1, "c": 1, "\\u0061": "y"}', None),
        (b'{"a": "x", "b": 1, "c": 1, "d": NaN}', None),
        (b'{"a": "x", "b": 1, "c": 1, "d": "\xff"}', None),
        (b"[1]", None),
        (b"7", None),
    ],
)
def test_lines_with_more_keys_are_read_alike_at_once_and_one_by_one(line: object, found: bool | None) -> None:
    """At once: the values that they have one by one; or nothing, where that may not be so."""
    reader = ObjectReader(SOME, {}, (), nan_null=False, others=True)
    text = line if isinstance(line, bytes) else json.dumps(line).encode()
    block = reader.block([text, b'{"a": "z", "b": 0, "c": 0, "more": 1}'])
    assert (block is not None) == bool(found)
    if block is not None:
        rows = [reader.values(text), reader.values(b'{"a": "z", "b": 0, "c": 0, "more": 1}')]
        assert block == {name: [row[name] for row in rows] for name in SOME}


def test_only_the_columns_of_a_request_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"a": 1, "b": 2}, {"c": 3, "b": 4}, {"b": 5, "x": {"b": 6}})
    source = opened(path, only=["b"])
    assert source.columns() == ({"b": "int64"}, [])
    assert [*read(source, {"b": "int64"})] == [{"b": 2}, {"b": 4}, {"b": 5}]
    with pytest.raises(UsageError, match=r"there is no such column \(expected a, b, c, x, found 'none'\)"):
        opened(path, only=["none"]).columns()
