"""Megatron-LM's indexed datasets become a dataset: documents or sequences, in order; a wrong index raises at first."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx import Dataset, SampleError, UsageError
from mdsx.storage import open_storage
from mdsx.transfer.converting import Conversion, megatron
from tests.transfer.converting.reruns import assert_same_bytes

GOLDEN = Path(__file__).parent / "golden" / "megatron"
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}
Documents = list[list[list[int]]]


def convert(*prefixes: Path, **options: Any) -> Conversion:
    return mdsx.convert("megatron", [str(prefix) for prefix in prefixes], prefixes[0].parent / "out", **options)


def tokens(folder: Path, column: str = "tokens") -> list[list[int]]:
    return [sample[column].tolist() for sample in Dataset(folder / "out")]


def joined(documents: Documents) -> list[list[int]]:
    return [[token for sequence in document for token in sequence] for document in documents]


def index(sizes: Any, pointers: Any, documents: Any, *, dtype: str = "uint16", head: bytes = b"MMIDIDX\0\0") -> bytes:
    header = head + struct.pack("<QBQQ", 1, CODES[dtype], len(sizes), len(documents))
    arrays = np.array(sizes, "<i4"), np.array(pointers, "<i8"), np.array(documents, "<i8")
    return header + b"".join(array.tobytes() for array in arrays)


def write(prefix: Path, documents: Documents, dtype: str = "uint16") -> Path:
    """Write PREFIX.idx and PREFIX.bin, whose sequences follow one another."""
    sequences = [np.array(sequence, dtype) for document in documents for sequence in document]
    sizes = [len(sequence) for sequence in sequences]
    pointers = np.cumsum([0, *(sequence.nbytes for sequence in sequences)])[:-1]
    bounds = np.cumsum([0, *map(len, documents)])
    Path(f"{prefix}.bin").write_bytes(b"".join(sequence.tobytes() for sequence in sequences))
    Path(f"{prefix}.idx").write_bytes(index(sizes, pointers, bounds, dtype=dtype))
    return prefix


def golden_documents() -> Documents:
    """Return what `golden/write_megatron.py` has written."""
    return [[[n * 1000 + k for k in range(n % 5)] for _ in range(n % 3 + (n != 4))] for n in range(12)]


# --- the result


@pytest.mark.parametrize(("name", "dtype"), [("u16", "uint16"), ("i32", "int32")])
@pytest.mark.parametrize("suffix", ["", ".idx", ".bin"])
def test_documents_of_megatrons_builder_are_converted(name: str, dtype: str, suffix: str, tmp_path: Path) -> None:
    done = mdsx.convert("megatron", f"{GOLDEN}/{name}{suffix}", tmp_path / "out")
    assert done.columns == {"tokens": f"{dtype}[*]"}
    assert tokens(tmp_path) == joined(golden_documents())
    assert Dataset(tmp_path / "out")[1]["tokens"].dtype == dtype


def test_sequences_of_megatrons_builder_are_converted(tmp_path: Path) -> None:
    mdsx.convert("megatron", f"{GOLDEN}/u16", tmp_path / "out", per="sequence")
    assert tokens(tmp_path) == [sequence for document in golden_documents() for sequence in document]


def test_datasets_that_megatron_merged_are_converted(tmp_path: Path) -> None:
    mdsx.convert("megatron", f"{GOLDEN}/merged", tmp_path / "out")
    assert tokens(tmp_path) == [*joined(golden_documents()), *joined(golden_documents()), [1, 2, 3]]


def test_modes_of_sequences_are_a_column(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"would lose the modes of their sequences.*--per sequence"):
        mdsx.convert("megatron", f"{GOLDEN}/modes", tmp_path / "out")
    done = mdsx.convert("megatron", f"{GOLDEN}/modes", tmp_path / "out", per="sequence")
    assert done.columns == {"tokens": "int32[*]", "mode": "int8"}
    modes = [number % 2 for document in golden_documents() for number in range(len(document))]
    assert [sample["mode"] for sample in Dataset(tmp_path / "out")] == modes
    mdsx.convert("megatron", f"{GOLDEN}/modes", tmp_path / "dropped", drop="mode")
    assert len(Dataset(tmp_path / "dropped")) == len(golden_documents())


@pytest.mark.parametrize("dtype", CODES)
def test_every_dtype_is_converted(dtype: str, tmp_path: Path) -> None:
    done = convert(write(tmp_path / "x", [[[1, 2], [3]], [], [[4]]], dtype))
    assert done.columns == {"tokens": f"{dtype}[*]"}
    assert tokens(tmp_path) == [[1, 2, 3], [], [4]]


def test_blocks_and_units_of_any_size_give_the_same_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    documents = [
        [random.integers(0, 2**16, size).tolist() for size in random.integers(0, 9, random.integers(0, 5))]
        for _ in range(50)
    ]
    write(tmp_path / "x", documents)
    found = set()
    for number, (unit, block, rows) in enumerate([(2**28, 2**23, 2**18), (100, 30, 7), (1, 1, 1)]):
        monkeypatch.setattr(megatron, "_UNIT", unit)
        monkeypatch.setattr(megatron, "_BLOCK", block)
        monkeypatch.setattr(megatron, "_ROWS", rows)
        mdsx.convert("megatron", f"{tmp_path}/x", tmp_path / f"{number}" / "out")
        found.add(Dataset(tmp_path / f"{number}" / "out").fingerprint)
        assert tokens(tmp_path / f"{number}") == joined(documents)
    assert len(found) == 1


def test_sequences_in_any_order_and_with_gaps_are_read(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (tmp_path / "x.bin").write_bytes(np.arange(10, dtype=np.uint16).tobytes())
    (tmp_path / "x.idx").write_bytes(index([2, 3, 1, 0], [12, 0, 6, 20], [0, 2, 4]))
    convert(tmp_path / "x")
    assert tokens(tmp_path) == [[6, 7, 0, 1, 2], [3]]
    assert "x.bin: 8 bytes belong to no sequence of the index" in str(recwarn[-1].message)


def test_several_datasets_follow_one_another(tmp_path: Path) -> None:
    write(tmp_path / "b", [[[1]]])
    write(tmp_path / "a", [[[2]], [[3]]])
    convert(tmp_path / "b", tmp_path / "a*")
    assert tokens(tmp_path) == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("column", "found"),
    [("int32[*]", [[1, 2], [3, 4]]), ("uint8[2]", [[1, 2], [3, 4]]), ("float32[*]?", [[1, 2], [3, 4]])],
)
def test_tokens_are_renamed_and_converted_to_a_declared_type(column: str, found: Any, tmp_path: Path) -> None:
    write(tmp_path / "x", [[[1, 2]], [[3], [4]]])
    done = convert(tmp_path / "x", rename={"ids": "tokens"}, columns={"ids": column})
    assert done.columns == {"ids": column}
    assert tokens(tmp_path, "ids") == found


def test_remote_datasets_are_read_by_ranges(s3_url: str, tmp_path: Path) -> None:
    write(tmp_path / "x", [[[1, 2], [3]], [[4]]])
    storage = open_storage(s3_url)
    for name in ("x.idx", "x.bin"):
        storage.put(name, (tmp_path / name).read_bytes())
    mdsx.convert("megatron", f"{s3_url}/x", tmp_path / "out")
    assert tokens(tmp_path) == [[1, 2, 3], [4]]


# --- errors


def test_a_document_that_does_not_fit_is_named_or_skipped(tmp_path: Path) -> None:
    write(tmp_path / "x", [[[1, 2]], [[300]], [[3]]])
    with pytest.raises(SampleError, match=r"x\.bin: document 1, column 'tokens': does not fit uint8\[\*\]"):
        convert(tmp_path / "x", columns={"tokens": "uint8[*]"})
    done = convert(tmp_path / "x", columns={"tokens": "uint8[*]"}, on_error="skip")
    assert (done.samples, done.skipped) == (2, 1)
    assert tokens(tmp_path) == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"head": b"MMIDIDY\0\0"}, "is not the index of a Megatron dataset"),
        ({"sizes": [2, -1, 3]}, "sequence 1: a sequence is not in the file of tokens"),
        (
            {"sizes": [2, 1, 4]},
            r"sequence 2: a sequence is not in the file of tokens .*inside the 12 bytes of .*x\.bin",
        ),
        ({"pointers": [0, 4, 8]}, "sequence 2: a sequence is not"),
        ({"pointers": [-2, 4, 6]}, "sequence 0: a sequence is not"),
        ({"pointers": [0, 2**63 - 1, 6]}, "sequence 1: a sequence is not"),
        ({"sizes": [2, 6, 3], "pointers": [0, 0, 6]}, "sequences overlap in the file of tokens"),
        ({"documents": [1, 2, 3]}, "bound 0 of documents: documents do not cover the sequences"),
        ({"documents": [0, 3, 2]}, "bound 2 of documents: documents do not cover"),
        ({"documents": [0, 2, 4]}, "bound 2 of documents: documents do not cover"),
        ({"documents": [0, 2]}, "bound 1 of documents: documents do not cover"),
        ({"documents": []}, "header: has no documents.*--per sequence"),
    ],
)
def test_a_wrong_index_raises_before_anything_is_written(change: Any, problem: str, tmp_path: Path) -> None:
    fields = {"sizes": [2, 1, 3], "pointers": [0, 4, 6], "documents": [0, 2, 3], **change}
    (tmp_path / "x.bin").write_bytes(bytes(12))
    (tmp_path / "x.idx").write_bytes(index(**fields))
    with pytest.raises(mdsx.CorruptError, match=rf"x\.idx: .*{problem}"):
        convert(tmp_path / "x")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", range(0, 90, 7))
def test_a_truncated_index_raises(size: int, tmp_path: Path) -> None:
    write(tmp_path / "x", [[[1, 2], [3]], [[4]]])
    whole = (tmp_path / "x.idx").read_bytes()
    (tmp_path / "x.idx").write_bytes(whole[:size])
    with pytest.raises(mdsx.CorruptError):
        convert(tmp_path / "x")


def test_other_problems_raise(tmp_path: Path) -> None:
    write(tmp_path / "x", [[[1, 2]]])
    write(tmp_path / "y", [[[1, 2]]], "int32")
    write(tmp_path / "empty", [])
    for options, problem in (
        ({"per": "token"}, "per is unknown"),
        ({"columns": {"text": "str"}}, "there is no such column"),
        ({"columns": {"tokens": "str"}}, "tokens must be numbers"),
        ({"drop": "tokens"}, "no column is left"),
    ):
        with pytest.raises(UsageError, match=problem):
            convert(tmp_path / "x", **options)
    with pytest.raises(UsageError, match=r"different dtypes.*--column 'tokens=int32\[\*\]'"):
        convert(tmp_path / "x", tmp_path / "y")
    with pytest.raises(UsageError, match="there is no document"):
        convert(tmp_path / "empty")
    (tmp_path / "x.bin").unlink()
    with pytest.raises(mdsx.MissingError, match=r"x\.bin"):
        convert(tmp_path / "x")


# --- the pipeline


def test_processes_and_reruns_give_the_same_dataset(tmp_path: Path) -> None:
    documents = [[[document] * (document % 100)] for document in range(400)]
    for number in range(2):
        write(tmp_path / f"x{number}", documents)
    sources = f"{tmp_path}/x{{0,1}}"
    one = assert_same_bytes("megatron", sources, tmp_path, stop_after=600)
    assert [sample["tokens"].tolist() for sample in Dataset(one)] == joined(documents) * 2
