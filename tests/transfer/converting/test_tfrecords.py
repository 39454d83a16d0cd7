"""TFRecord files become a dataset: the same samples in the same order, or errors that name record, offset, feature."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from tensorboardX.record_writer import RecordWriter

import mdsx
from mdsx import Dataset, SampleError, UsageError
from mdsx.transfer.converting import Conversion
from tests.foreign.tars.tars import JPEG, png
from tests.transfer.converting import tf_files
from tests.transfer.converting.reruns import assert_same_bytes
from tests.transfer.converting.tf_files import example, record, records, write

GOLDEN = Path(__file__).parent / "golden" / "tfrecord"


def convert(folder: Path, *names: str, **options: Any) -> Conversion:
    sources = [f"{folder}/{name}" for name in names or ("*.tfrecord",)]
    return mdsx.convert("tfrecord", sources, folder / "out", **options)


def samples(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in sample.items()}
        for sample in Dataset(folder / "out")
    ]


def converted(folder: Path, given: Sequence[Mapping[str, Any]], **options: Any) -> tuple[dict[str, str], list[Any]]:
    """Return the columns and samples of a file of these examples."""
    write(folder / "x.tfrecord", given)
    columns = dict(convert(folder, **options).columns)
    return columns, samples(folder)


# --- the result


@pytest.mark.parametrize("name", ["plain", "gzip", "zlib"])
def test_files_of_tensorflow_are_converted(name: str, tmp_path: Path) -> None:
    """`golden/write_tfrecord.py` says what is in them."""
    mdsx.convert("tfrecord", f"{GOLDEN}/{name}.tfrecord", tmp_path / "out")
    dataset = Dataset(tmp_path / "out")
    assert dataset.columns == {
        "boxes": "float32[*]?", "ids": "int64[*]", "image/class/text": "str", "image/encoded": "jpeg", "label": "int64",
        "rare": "int64?", "raw": "bytes", "scores": "float32[3]", "tags": "str[*]?",
    }  # fmt: skip
    assert samples(tmp_path) == [
        {
            "boxes": [0.25 * k for k in range(n % 3 * 4)] or None,
            "ids": [n * 3**k for k in range(n + 1)],
            "image/class/text": f"class {n} ß",
            "image/encoded": b"\xff\xd8\xff\xe0pixels\xff\xd9" + bytes([n]),
            "label": n - 1,
            "rare": None if n % 4 else -n,
            "raw": bytes([n, 0, 255]),
            "scores": np.array([n / 2, -1.5, 1e30], np.float32).tolist(),
            "tags": ["a"] * (n % 3) or None,
        }
        for n in range(10)
    ]


def test_records_that_tensorboardx_frames_are_read(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path / "x.tfrecord"))
    for number in range(20):
        writer.write(example({"x": number, "data": b"\0" * number}))
    writer.close()
    assert convert(tmp_path).samples == 20
    assert [sample["x"] for sample in samples(tmp_path)] == list(range(20))


def test_any_compression_gives_the_same_dataset(tmp_path: Path) -> None:
    data = records({"x": number, "text": b"text"} for number in range(50))
    compressors: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, zlib.compress, zstandard.compress]
    found = set()
    for number, compress in enumerate(compressors):
        (tmp_path / f"{number}.tfrecord").write_bytes(compress(data))
        mdsx.convert("tfrecord", f"{tmp_path}/{number}.tfrecord", tmp_path / f"out{number}")
        found.add(Dataset(tmp_path / f"out{number}").fingerprint)
    assert len(found) == 1


def test_a_plain_record_whose_length_looks_like_gzip_is_read(tmp_path: Path) -> None:
    fill = 0x8B1F - len(example({"x": b"\0" * 0x8B00})) + 0x8B00
    data = example({"x": b"\0" * fill})
    assert struct.pack("<Q", len(data))[:2] == b"\x1f\x8b"
    (tmp_path / "x.tfrecord").write_bytes(record(data))
    assert convert(tmp_path).samples == 1


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, -2], "int64"),
        ([1.5, 2.5], "float32"),
        ([[1, 2], [3, 4]], "int64[2]"),
        ([[1.0], [1.0, 2.0]], "float32[*]"),
        ([[1], [1, 2]], "int64[*]"),
        ([b"text", "grüße\n".encode()], "str"),
        ([b"text", b"\xff"], "bytes"),
        ([b"text", b"with \0"], "bytes"),
        ([JPEG, JPEG], "jpeg"),
        ([png(), png()], "png"),
        ([JPEG, png()], "bytes"),
        ([b"a", [b"a", b"b"]], "str[*]"),
        ([[b"\0", b"b"], b"a"], "bytes[*]"),
        ([1, None], "int64?"),
        ([None, [b"a", b"b"]], "str[*]?"),
    ],
)
def test_types_are_inferred_and_values_kept(values: list[Any], column: str, tmp_path: Path) -> None:
    given = [{"z": number, **({} if value is None else {"x": value})} for number, value in enumerate(values)]
    columns, found = converted(tmp_path, given)
    assert columns == {"x": column, "z": "int64"}
    listed = [value if value is None or isinstance(value, list) or "[" not in column else [value] for value in values]
    as_text = column.startswith("str")

    def text(value: Any) -> Any:
        return value.decode() if as_text and isinstance(value, bytes) else value

    expected = [[text(item) for item in value] if isinstance(value, list) else text(value) for value in listed]
    assert [sample["x"] for sample in found] == expected


@pytest.mark.parametrize(
    ("value", "column", "read"),
    [
        ([0, 1], "bool[2]", [False, True]),
        (3, "uint8", 3),
        (3, "float64", 3.0),
        ([1.0, 2.0, 3.0, 4.0], "float32[2,2]", [[1.0, 2.0], [3.0, 4.0]]),
        ([1, 2, 3, 4], "uint16[*,2]", [[1, 2], [3, 4]]),
        (b'{"a": [1]}', "json", {"a": [1]}),
        (b"\x81\xa1a\x01", "msgpack", {"a": 1}),
        (b"\1\2\3\4", "uint8[2,2]", [[1, 2], [3, 4]]),
        (struct.pack("<2f", 1.5, 2.5), "float32[*]", [1.5, 2.5]),
        (b"text", "bytes", b"text"),
        ([b"1", b"[2]"], "json[*]", [1, [2]]),
    ],
)
def test_a_declared_type_converts_values(value: Any, column: str, read: Any, tmp_path: Path) -> None:
    assert converted(tmp_path, [{"x": value}], columns={"x": column})[1] == [{"x": read}]


def test_features_are_renamed_and_dropped(tmp_path: Path) -> None:
    given = [{"image/encoded": JPEG, "image/id": 1, "image/junk": b"x"}]
    options: dict[str, Any] = {"rename": {"image": "image/encoded"}, "drop": ["image/junk"]}
    columns, found = converted(tmp_path, given, **options, columns={"image": "bytes"})
    assert list(columns.items()) == [("image", "bytes"), ("image/id", "int64")]
    assert found == [{"image": JPEG, "image/id": 1}]


def test_an_option_that_matches_nothing_raises_or_warns(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    write(tmp_path / "x.tfrecord", [{"x": 1}] * 999)
    with pytest.raises(UsageError, match=r"--drop names a column that does not exist.*'y'"):
        convert(tmp_path, drop=["y"])
    write(tmp_path / "x.tfrecord", [{"x": 1}] * 1000 + [{"x": 1, "y": 2}])
    convert(tmp_path, drop=["y"])
    assert "the first 1,000 samples have no feature 'y'" in str(recwarn[-1].message)


def test_columns_are_inferred_from_so_many_bytes_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.transfer.converting.tfrecords._FIRST_BYTES", len(example({"x": 1})) * 11 // 2)
    write(tmp_path / "a.tfrecord", [{"x": 1}] * 4)
    write(tmp_path / "b.tfrecord", [{"x": 1}, {"x": 1}, {"x": 1, "y": 1}])
    with pytest.raises(SampleError, match=r"b\.tfrecord: record 2, .*a feature that the first samples lack"):
        convert(tmp_path)


# --- errors


def bad_data(data: bytearray, size: int) -> None:
    data[2 * size + 20] ^= 1


def bad_length(data: bytearray, size: int) -> None:
    data[2 * size + 1] ^= 1


def truncated(data: bytearray, size: int) -> None:
    del data[-10:]


def cut_in_a_length(data: bytearray, size: int) -> None:
    del data[2 * size + 7 :]


DAMAGE: dict[Callable[[bytearray, int], None], tuple[str, int]] = {
    bad_data: (r"record 2, offset \d+: the data of a record has a wrong checksum", 9),
    bad_length: (r"record 2, offset \d+: the length of a record has a wrong checksum", 2),
    truncated: (r"record 9, offset \d+: file is truncated in the middle of a record ", 9),
    cut_in_a_length: (r"record 2, offset \d+: file is truncated in the middle of a record's length", 2),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("compress", [bytes, zlib.compress], ids=["plain", "zlib"])
def test_damage_raises_or_is_skipped_and_counted(
    damage: Callable[[bytearray, int], None], compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    data = bytearray(records({"x": number} for number in range(10)))
    damage(data, len(data) // 10)
    (tmp_path / "x.tfrecord").write_bytes(compress(bytes(data)))
    message, left = DAMAGE[damage]
    with pytest.raises(mdsx.CorruptError, match=message):
        convert(tmp_path)
    skips: list[str] = []
    done = convert(tmp_path, on_error="skip", watch=lambda progress: skips.extend(map(str, progress.problems)))
    assert (done.samples, done.skipped) == (left, 1)
    assert re.search(f"{tmp_path}/x.tfrecord: {message}", skips[0])


def test_a_damaged_compressed_file_keeps_the_records_before(tmp_path: Path) -> None:
    data = gzip.compress(records({"x": n, "data": bytes(range(256))} for n in range(2000)), 0)
    (tmp_path / "x.tfrecord.gz").write_bytes(data[: len(data) // 2])
    done = convert(tmp_path, "x.tfrecord.gz", on_error="skip")
    assert 800 < done.samples <= 1000
    assert done.skipped == 1


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        ({"x": 1}, "feature 'y': the sample lacks a feature; --column 'y=str[?]'"),
        ({"x": 1, "y": b"a", "z": 2.0}, "feature 'z': the sample has .*; --column 'z=float32[?]' .* --drop 'z'"),
        ({"x": [1, 2], "y": b"a"}, "feature 'x': does not fit column 'x' of type int64: it has 2 values, not one"),
        ({"x": 1.5, "y": b"a"}, "column 'x': does not fit int64"),
        ({"x": b"a", "y": b"a"}, "feature 'x': does not fit column 'x' of type int64: bytes_list of 1 value"),
        ({"x": 1, "y": b"\xff"}, "feature 'y': does not fit column 'y' of type str: it is not UTF-8"),
        ({"x": 1, "y": 5}, "feature 'y': does not fit column 'y' of type str: int64_list of 1 value"),
    ],
)  # fmt: skip
def test_a_sample_that_does_not_fit_names_its_feature(sample: Any, problem: str, tmp_path: Path) -> None:
    """It comes after those from which the columns are inferred."""
    data = records([{"x": 1, "y": b"text"}]) * 1000
    (tmp_path / "x.tfrecord").write_bytes(data + records([sample]))
    with pytest.raises(SampleError, match=rf"x\.tfrecord: record 1000, offset {len(data)}, {problem}"):
        convert(tmp_path)
    assert convert(tmp_path, on_error="skip").skipped == 1


def test_a_renamed_feature_is_named_in_errors(tmp_path: Path) -> None:
    write(tmp_path / "x.tfrecord", [{"old": 300}])
    with pytest.raises(SampleError, match="record 0, offset 0, feature 'old', column 'new': does not fit uint8"):
        convert(tmp_path, rename={"new": "old"}, columns={"new": "uint8"})


def test_a_feature_of_two_kinds_is_refused_unless_declared(tmp_path: Path) -> None:
    write(tmp_path / "x.tfrecord", [{"x": 1}, {"x": 1.5}])
    with pytest.raises(SampleError, match=r"values of two kinds .*int64 at .*record 0.*float32 at .*record 1"):
        convert(tmp_path)
    convert(tmp_path, columns={"x": "float32"})
    assert samples(tmp_path) == [{"x": 1.0}, {"x": 1.5}]


@pytest.mark.parametrize(
    ("data", "error", "problem"),
    [
        (b"", UsageError, "there is no sample"),
        (b"not a TFRecord file", mdsx.CorruptError, "record 0, offset 0: is not a TFRecord file"),
        (b"BZh91AY&" + b"x" * 100, mdsx.UnsupportedError, "is bzip2: files may be plain, gzip or zstd"),
        (record(b"\xff\xff"), SampleError, "record 0, offset 0: is not a tf.train.Example"),
        ((GOLDEN / "sequence.tfrecord").read_bytes(), mdsx.UnsupportedError, "is a SequenceExample"),
        (records([{}]), UsageError, "no feature is left"),
    ],
)
def test_a_file_of_something_else_raises(data: bytes, error: Any, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(data)
    with pytest.raises(error, match=problem):
        convert(tmp_path)
    assert not list((tmp_path / "out").rglob("*.mdsx"))


def test_a_record_that_claims_too_much_raises(tmp_path: Path) -> None:
    length = struct.pack("<Q", 2**40)
    head = length + tf_files.masked(length)
    (tmp_path / "x.tfrecord").write_bytes(records([{"x": 1}]) + head + bytes(100))
    with pytest.raises(mdsx.CorruptError, match=r"record 1, offset .*too large"):
        convert(tmp_path)


# --- the pipeline


def test_processes_and_reruns_give_the_same_dataset(tmp_path: Path) -> None:
    for file in range(4):
        write(tmp_path / f"{file}.tfrecord", ({"x": 100 * file + n, "data": b"\0" * 100} for n in range(100)))
    sources = f"{tmp_path}/{{0..3}}.tfrecord"
    one = assert_same_bytes("tfrecord", sources, tmp_path, stop_after=250)
    assert [sample["x"] for sample in Dataset(one)] == list(range(400))
