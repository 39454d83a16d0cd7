"""What each base type promises: its values are written, read, gathered, shown, exported and imported again.

A new type needs a row in ROWS, and nothing else here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import mdsx
from mdsx import SampleError, UsageError
from mdsx.foreign.arrow import arrow_type
from mdsx.format import BASES, MAX_SPAN, NUMBERS, ColumnType, Schema, length_rule, parse_type, value_encoder
from mdsx.view.values import described, media_of

ROOT = Path(mdsx.__file__).parent
SPEC = (ROOT.parent / "format-spec.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    """Two values of a type, as they are given and as they are read, and values that it refuses."""

    one: Any
    other: Any
    refused: list[Any]


ROWS = {
    "bool": Row(True, False, [2, 0.5, "true"]),
    "int8": Row(-128, 127, [128, 1.0]),
    "int16": Row(-(2**15), 2**15 - 1, [2**15, 1.0]),
    "int32": Row(-(2**31), 2**31 - 1, [2**31, 1.0]),
    "int64": Row(-(2**63), 2**63 - 1, [2**63, 1.0]),
    "uint8": Row(0, 255, [-1, 256]),
    "uint16": Row(0, 2**16 - 1, [-1, 2**16]),
    "uint32": Row(0, 2**32 - 1, [-1, 2**32]),
    "uint64": Row(0, 2**64 - 1, [-1, 2**64]),
    "float16": Row(65504.0, -(2.0**-24), [65520.0, 2049, "1"]),
    "bfloat16": Row(2.0**127 * 255 / 128, -(2.0**-133), [3.4e38, 257, np.float32(1)]),
    "float32": Row(2.0**127, -(2.0**-149), [3.5e38, 2**24 + 1, np.float64(1).reshape(1)]),
    "float64": Row(0.1, -(2.0**-1074), [2**53 + 1, "1"]),
    "float8_e4m3fn": Row(448.0, -(2.0**-9), [464.1, float("inf"), 17, np.float32(1)]),
    "bytes": Row(b"\x00\xff", b"", ["text", 1]),
    "str": Row("é\0😀", "", [b"text", "\ud83d"]),
    "json": Row({"z": [1, None, "é"], "a": 0.5}, "text", [float("nan"), {1: 2}, {"a": b""}]),
    "msgpack": Row({"z": [1, None, "é"], "a": 0.5}, "text", [(1,), {"a": {1}}]),
    "jpeg": Row(b"\xff\xd8\xff\xe0", b"\xff\xd8\xff", [b"\xff\xd8", b"", "text"]),
    "png": Row(b"\x89PNG\r\n\x1a\n\x00", b"\x89PNG\r\n\x1a\n", [b"\x89PNG", "text"]),
    "webp": Row(b"RIFF\x04\0\0\0WEBPVP8L", b"RIFF\x04\0\0\0WEBP", [b"RIFF\x04\0\0\0WAVE", b"WEBP", "text"]),
    "avif": Row(b"\0\0\0\x1cftypavif\0\0\0\0", b"\0\0\0\x20ftypavis", [b"\0\0\0\x18ftypheic", b"ftypavif", "text"]),
    "wav": Row(b"RIFF\x04\0\0\0WAVEfmt ", b"RF64\xff\xff\xff\xffWAVE", [b"RIFF\x04\0\0\0WEBP", b"RIFX\0\0\0\0WAVE"]),
    "flac": Row(b"fLaC\0\0\0\x22", b"ID3\x04\0\0\0\0\0\0fLaC", [b"OggS\0\2", b"flac", "text"]),
    "mp3": Row(b"ID3\x03\0\0\0\0\0\0", b"\xff\xfb\x90\x64", [b"\xff\xf1\x50\x80", b"\xff\xfd\x90", b"\xff"]),
    "mp4": Row(b"\0\0\0\x18ftypmp42", b"\0\0\0\x20ftypisom", [b"\0\0\0\x08free", b"ftypisom", "text"]),
}
each_type = pytest.mark.parametrize("base", ROWS)


def columns_of(base: str) -> dict[str, str]:
    columns = {"one": base, "maybe": f"{base}?", "many": f"{base}[*]"}
    return {**columns, "pair": f"{base}[2]"} if base in NUMBERS else columns


def samples_of(base: str) -> list[dict[str, Any]]:
    one, other, _ = ROWS[base]
    samples = [
        {"one": one, "maybe": other, "many": [one, other], "pair": [one, other]},
        {"one": other, "maybe": None, "many": [], "pair": [other, one]},
    ]
    return [{name: sample[name] for name in columns_of(base)} for sample in samples]


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else list(map(plain, value)) if isinstance(value, list) else value


def same(found: Any, samples: list[dict[str, Any]]) -> bool:
    return [{name: plain(value) for name, value in sample.items()} for sample in found] == samples


@pytest.fixture
def written(base: str, tmp_path: Path) -> Path:
    with mdsx.Writer(tmp_path / "dataset", columns_of(base)) as out:
        for sample in samples_of(base):
            out.write(sample)
    return tmp_path / "dataset"


def test_each_type_has_a_row() -> None:
    assert ROWS.keys() == BASES.keys()


@each_type
def test_values_are_written_and_read(base: str, written: Path, tmp_path: Path) -> None:
    dataset = mdsx.Dataset(written)
    assert same(dataset, samples_of(base))
    taken = {name: plain(values) for name, values in dataset.take([1, 0]).items()}
    assert taken == {name: [sample[name] for sample in samples_of(base)[::-1]] for name in columns_of(base)}
    assert list(mdsx.verify(written)) == []
    with mdsx.Writer(tmp_path / "batch", columns_of(base)) as out:
        out.write_batch({name: [sample[name] for sample in samples_of(base)] for name in columns_of(base)})
    assert mdsx.Dataset(tmp_path / "batch").fingerprint == dataset.fingerprint


@each_type
def test_wrong_values_are_refused(base: str, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "dataset", {"one": base, "maybe": f"{base}?"}) as out:
        for value in ROWS[base].refused:
            with pytest.raises(SampleError):
                out.write({"one": ROWS[base].one, "maybe": value})
            with pytest.raises(SampleError):
                out.write_batch({"one": [value], "maybe": [None]})
        out.write({"one": ROWS[base].one, "maybe": None})
    assert len(mdsx.Dataset(tmp_path / "dataset")) == 1


@each_type
def test_values_are_gathered(base: str, written: Path) -> None:
    torch, ours = pytest.importorskip("torch"), pytest.importorskip("mdsx.torch")
    samples, number = samples_of(base), NUMBERS.get(base)
    (arrays,) = mdsx.Loader(written, batch_size=2, shuffle=False)
    (tensors,) = ours.StreamingDataLoader(ours.StreamingDataset(written, shuffle=False), batch_size=2)
    for name in columns_of(base):
        assert plain(arrays[name]) == [sample[name] for sample in samples]
        assert plain(tensors[name]) == [sample[name] for sample in samples]
    if number is not None:
        dtype = number.numpy(np.zeros(1, number.item)).dtype
        assert arrays["one"].dtype == arrays["pair"].dtype == arrays["many"][0].dtype == dtype
        same_dtype = getattr(torch, base)
        assert tensors["one"].dtype == tensors["pair"].dtype == tensors["many"][0].dtype == same_dtype
        assert tensors["pair"].shape == (2, 2)


@each_type
def test_tensors_and_arrays_are_written(base: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if base not in NUMBERS:
        return
    one, other, _ = ROWS[base]
    tensor = torch.tensor([one, other], dtype=getattr(torch, base))
    with mdsx.Writer(tmp_path / "dataset", {"pair": f"{base}[2]", "many": f"{base}[*]"}) as out:
        out.write({"pair": tensor, "many": tensor})
        out.write_batch({"pair": tensor[None], "many": tensor[None]})
    assert same(mdsx.Dataset(tmp_path / "dataset"), [{"pair": [one, other], "many": [one, other]}] * 2)


@each_type
def test_lengths_follow_from_the_kind(base: str) -> None:
    kind = BASES[base].kind
    assert length_rule(parse_type(base)) == {"integer": "number", "float": None, "bool": None}.get(kind, "bytes")
    assert length_rule(parse_type(f"{base}[*]")) == ("values" if base in NUMBERS else None)


@each_type
def test_values_are_shown(base: str, written: Path) -> None:
    kind, media, (one, *_) = BASES[base].kind, getattr(BASES[base], "media", None), mdsx.Dataset(written)
    shown = {"text": "text", "document": "json", "bytes": (media or "bytes").partition("/")[0]}
    assert described(one["one"], base)["kind"] == shown.get(kind, "number")
    assert described(one["many"], f"{base}[*]")["kind"] == ("array" if base in NUMBERS else "list")
    assert media_of(one["one"], base) == (None if media is None else (media, one["one"]))


def stored(base: str, sample: dict[str, Any]) -> dict[str, Any]:
    """Return a sample as Arrow has it: with documents as they are stored."""
    if BASES[base].kind != "document":
        return sample
    encode = value_encoder(ColumnType(base))
    text = bytes.decode if BASES[base].arrow == "string" else bytes

    def each(name: str, value: Any) -> Any:
        if name == "many":
            return [text(encode(item)) for item in value]
        return None if value is None else text(encode(value))

    return {name: each(name, value) for name, value in sample.items()}


@each_type
def test_values_become_arrow_and_parquet_and_come_back(base: str, written: Path, tmp_path: Path) -> None:
    expected = [stored(base, sample) for sample in samples_of(base)]
    table = mdsx.Dataset(written).take([0, 1], as_arrow=True)
    assert table.schema.field("one").type == arrow_type(ColumnType(base))
    assert table.to_pylist() == expected
    with mdsx.Writer(tmp_path / "arrow", mdsx.arrow_columns(table)) as out:
        out.write_batch(table)
    assert same(mdsx.Dataset(tmp_path / "arrow"), expected)
    mdsx.export("parquet", written, tmp_path / "parquet")
    mdsx.convert("parquet", f"{tmp_path}/parquet/*.parquet", tmp_path / "back")
    assert same(mdsx.Dataset(tmp_path / "back"), expected)
    assert mdsx.Dataset(tmp_path / "back").columns["one"] == mdsx.arrow_columns(pa.table({"one": table["one"]}))["one"]


@each_type
def test_values_become_tars_and_come_back(base: str, written: Path, tmp_path: Path) -> None:
    columns = columns_of(base)
    if base not in NUMBERS and BASES[base].arrow != "string":
        with pytest.raises(UsageError, match="a tar cannot hold lists of bytes"):
            mdsx.export("tar", written, tmp_path / "tar")
        del columns["many"]
    mdsx.export("tar", written, tmp_path / "tar", columns=list(columns))
    if base in NUMBERS and not NUMBERS[base].native and base != "bool":  # files of NumPy have no such arrays
        columns |= {"many": "float32[*]", "pair": "float32[2]"}
    mdsx.convert("tar", f"{tmp_path}/tar/*.tar", tmp_path / "back", columns=columns)
    expected = [{name: sample[name] for name in columns} for sample in samples_of(base)]
    assert same(mdsx.Dataset(tmp_path / "back", columns=list(columns)), expected)
    in_place = {name: kind for name, kind in columns.items() if name != "many"}
    mdsx.index_tars(tmp_path / "tar", columns=in_place, drop=["many"] if "many" in columns else [])
    for sample in expected:
        sample.pop("many", None)
    assert same(mdsx.Dataset(tmp_path / "tar", columns=list(expected[0])), expected)


@each_type
def test_values_become_json_lines_and_come_back(base: str, written: Path, tmp_path: Path) -> None:
    mdsx.export("jsonl", written, tmp_path / "lines")
    mdsx.convert("jsonl", f"{tmp_path}/lines/*.jsonl", tmp_path / "back", columns=columns_of(base))
    assert mdsx.Dataset(tmp_path / "back").fingerprint == mdsx.Dataset(written).fingerprint


@each_type
def test_datasets_are_split_by_values_of_one_form(base: str, written: Path) -> None:
    if BASES[base].kind == "document":
        with pytest.raises(UsageError, match="split only by"):
            mdsx.Dataset(written).split(0.5, 0.5, seed=0, by="one")
    else:
        assert sum(map(len, mdsx.Dataset(written).split(0.5, 0.5, seed=0, by="one"))) == 2


@each_type
def test_types_of_later_versions_are_in_the_heap(base: str) -> None:
    """Readers of version 1.0 take them as unknown, and unknown columns have no bytes in the rows."""
    schema = Schema.from_columns({"a": base})
    assert schema.minor == BASES[base].minor
    assert bool(schema.variable) == (base not in NUMBERS or schema.minor > 0)


@each_type
def test_the_specification_has_each_type(base: str) -> None:
    (line,) = [line for line in SPEC.splitlines() if line.startswith("| `") and f"`{base}`" in line.split("|")[1]][:1]
    size = line.split("|")[3].strip()
    assert bool(size) == (base in NUMBERS)
    if base in NUMBERS:
        assert str(NUMBERS[base].item.itemsize) in size.split(", ")


# --- no list of types elsewhere

_WORDS = {"bool", "bytes", "json", "str"}
"""Names of types that have other meanings too. Only where they are compared with a type's base, they are its name."""

_FOREIGN = {
    "foreign/mds/encodings.py",  # the encodings of MDS
    "foreign/mds/values.py",  # MDS's codes of dtypes
    "engines/spark_scan.py",  # Arrow's names of types that Spark lacks
    "foreign/tokens/headers.py",  # Megatron's codes of dtypes, and the types of llm.c
    "transfer/converting/tf_example.py",  # the lists of tf.train.Feature
    "transfer/converting/tf_columns.py",  # the same
    "quickstart/documents.py",  # a user's program: its columns
    "quickstart/program.py",  # the same: the type that an embedding takes
}
"""Modules that translate the words of another format, or are a user's."""


def test_no_other_module_names_a_type() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("format/families/", "testing/")) or name in _FOREIGN:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_name(node.value):
                found.append(f"{name}:{node.lineno}: {node.value!r}")
            if isinstance(node, ast.Compare | ast.Subscript) and _names_base(node):
                found.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def _is_name(text: str) -> bool:
    base = re.match(r"\w*", text)[0]  # type: ignore[index]  # it always matches
    return base in BASES.keys() - _WORDS and re.fullmatch(r"\w+(\[[*\d,]*\])?\??", text) is not None


def _names_base(node: ast.Compare | ast.Subscript) -> bool:
    parts = list(ast.walk(node))
    words = {part.value for part in parts if isinstance(part, ast.Constant)} & _WORDS
    return bool(words) and any(isinstance(part, ast.Attribute) and part.attr == "base" for part in parts)


def test_float8_rounds_to_the_nearest_of_its_values() -> None:
    """Compared with all values, computed from the bits: ties to the even one, above 464 an error or NaN."""
    float8 = NUMBERS["float8_e4m3fn"]
    bits = np.arange(256, dtype=np.uint8)
    values = [(-1) ** (b >> 7) * ((8 + b % 8) * 2.0 ** ((b >> 3) % 16 - 10) if b & 0x78 else b % 8 * 2.0**-9)
              for b in range(256)]  # fmt: skip
    values[127] = values[255] = float("nan")
    np.testing.assert_array_equal(float8.numpy(bits), np.array(values, np.float32))
    finite = np.array(values[:127])
    between = (finite[1:] + finite[:-1]) / 2
    tried = np.concatenate([finite, between, np.nextafter(between, 0), np.nextafter(between, 999), [463.9, 464.0]])
    tried = np.concatenate([tried, -tried])
    encode, narrowed = value_encoder(ColumnType("float8_e4m3fn")), float8.narrow(tried)  # type: ignore[attr-defined]
    for value, code in zip(tried.tolist(), narrowed.tolist(), strict=True):
        near = np.abs(finite - abs(value))
        best = np.flatnonzero(near == near.min())
        even = best[0] if len(best) == 1 else best[best % 2 == 0][0]
        assert code == even | (0x80 if np.signbit(value) else 0)
        assert encode(value) == bytes([code])
    large = np.array([464.1, np.inf, np.nan, -1e300, -np.nan])
    assert float8.narrow(large).tolist() == [127, 127, 127, 255, 255]  # type: ignore[attr-defined]
    assert encode(float("nan")) == b"\x7f"
    assert parse_type("float8_e4m3fn[2147483647]").nbytes == MAX_SPAN - 1
