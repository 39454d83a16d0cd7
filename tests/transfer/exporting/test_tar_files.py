"""Tars give back the members and the bytes, and other readers read them; what they cannot hold is refused."""

from __future__ import annotations

import io
import shlex
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mdsx
from mdsx import SampleError, UsageError
from mdsx.foreign.tars import read_members
from mdsx.transfer.exporting.tar_files import npy_bytes, tar_header
from tests.foreign.tars.tars import npy, tar_bytes
from tests.transfer.exporting.conftest import COLUMNS, Convert, same, sample, write


def members(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            found.update({member.name: tar.extractfile(member).read() for member in tar})  # type: ignore[union-attr]
    return found


def test_each_value_is_a_member_in_the_form_of_its_type(dataset: Path, tmp_path: Path) -> None:
    mdsx.export("tar", dataset, tmp_path / "out", file_size="40kB")
    found = members(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.tar"))) > 1
    seven = sample(7)
    assert {name: data for name, data in found.items() if name.startswith("dir/k0007.")} == {
        "dir/k0007.txt": "tëxt\n7".encode(),
        "dir/k0007.cls": b"2",
        "dir/k0007.jpg": seven["jpg"],
        "dir/k0007.seg.png": seven["seg.png"],
        "dir/k0007.json": '{"n":7,"list":[1.5,null,"é"]}'.encode(),
        "dir/k0007.emb.npy": npy(seven["emb.npy"]),
        "dir/k0007.ids.npy": npy(seven["ids.npy"]),
        "dir/k0007.ok": b"0",
        "dir/k0007.score": repr(float(np.float32(seven["score"]))).encode(),
        "dir/k0007.tags": b'["a","7"]',
        "dir/k0007.pack": b"\x82\xa1b\xc4\x02\xff\x00\xa1n\x07",
        "dir/k0007.many": b'[{"x":7},null]',
    }
    assert "dir/k0003.bin" in found  # null has no member, as in sample 7
    assert list(found)[:2] == ["dir/k0000.txt", "dir/k0000.cls"]


def test_tar_to_mdsx_to_tar_gives_back_members_and_bytes(tmp_path: Path, back: Convert) -> None:
    given = [
        ("a/1.jpg", b"\xff\xd8\xff1"), ("a/1.cls", b"7"), ("a/1.json", b'{"a":[1,2.5]}'), ("a/1.x.npy", npy([1, 2])),
        ("a/1.bin", b"\0\xff"), ("a/1.txt", "é".encode()),
        ("a/2.jpg", b"\xff\xd8\xff2"), ("a/2.cls", b"-3"), ("a/2.json", b"null"), ("a/2.x.npy", npy([3, 4])),
        ("a/2.bin", b""), ("a/2.txt", b""),
    ]  # fmt: skip
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.tar").write_bytes(tar_bytes(given))
    mdsx.export("tar", back(tmp_path / "in"), tmp_path / "out")
    (data,) = [path.read_bytes() for path in (tmp_path / "out").glob("*.tar")]
    assert [(m.name, m.data) for m in read_members(iter([data]), file="x")] == given  # type: ignore[union-attr]


def test_column_as_bytes_keeps_bytes_that_are_not_canonical(tmp_path: Path, back: Convert) -> None:
    given = [("1.cls", b"007\n"), ("1.json", b'{ "a": 1 }')]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.tar").write_bytes(tar_bytes(given))
    mdsx.export("tar", back(tmp_path / "in", "--column", "cls=bytes", "--column", "json=bytes"), tmp_path / "exact")
    assert list(members(tmp_path / "exact").items()) == given


def test_converting_an_export_gives_the_dataset_back(dataset: Path, tmp_path: Path, back: Convert) -> None:
    mdsx.export("tar", dataset, tmp_path / "out", file_size="40kB")
    declared = [f"{name}={kind}" for name, kind in COLUMNS.items() if name != "__key__"]
    found = back(tmp_path / "out", *(word for text in declared for word in ("--column", text)))
    assert dict(found.columns) == COLUMNS
    for one, other in zip(found, mdsx.Dataset(dataset), strict=True):
        assert same(one, other)


def test_the_forms_say_which_columns_to_declare_on_the_way_back(dataset: Path, tmp_path: Path) -> None:
    forms = mdsx.export("tar", dataset, tmp_path / "out").forms
    assert (forms["__key__"], forms["jpg"], forms["cls"]) == ("the key", "its bytes", "a number as text")
    assert forms["tags"] == "JSON; back with --column 'tags=str[*]?'"


def test_the_form_of_floats_that_numpy_lacks_leads_back_to_their_values(tmp_path: Path, back: Convert) -> None:
    samples = [{"txt": "a", "w.npy": [1.5, -2.0]}, {"txt": "b", "w.npy": None}]
    path = write(tmp_path / "in", {"txt": "str", "w.npy": "bfloat16[*]?"}, samples)
    said, _, option = mdsx.export("tar", path, tmp_path / "out").forms["w.npy"].partition("; back with ")
    assert said == "a NumPy file of float32"
    first, second = back(tmp_path / "out", *shlex.split(option))
    assert (first["w.npy"].tolist(), second["w.npy"]) == ([1.5, -2.0], None)


def test_keys_are_numbers_without_a_column_of_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"txt": "str"}, [{"txt": "a"}, {"txt": "b"}])
    mdsx.export("tar", path, tmp_path / "out")
    assert members(tmp_path / "out") == {"000000.txt": b"a", "000001.txt": b"b"}


def test_headers_have_neither_times_nor_owners(dataset: Path, tmp_path: Path) -> None:
    mdsx.export("tar", dataset, tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "data-00000.tar") as tar:
        facts = {(each.mtime, each.uid, each.gid, each.uname, each.gname, each.mode, each.type) for each in tar}
    assert facts == {(0, 0, 0, "", "", 0o644, tarfile.REGTYPE)}


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), st.integers(0, 2**32))
@example("x" * 100, 1)
@example("x" * 101, 1)
@example("é" * 90, 0)
@example("x" * 975, 2)  # the length of the pax record has a digit more than without its own digits
def test_headers_are_what_tarfile_reads(name: str, size: int) -> None:
    with tarfile.open(fileobj=io.BytesIO(tar_header(name, size) + bytes(10240))) as tar:
        found = tar.next()
    assert found is not None
    assert found.name.rstrip("/") == name.rstrip("/")  # tarfile drops slashes at the end of a pax record's name
    assert found.size == size


@pytest.mark.parametrize("array", [np.array([[1, 2]], np.float32), np.zeros((0, 3), np.int8), np.bool_([True])])
def test_arrays_are_what_numpy_saves(array: Any) -> None:
    assert npy_bytes(np.asarray(array)) == npy(array)
    assert npy_bytes(np.asfortranarray(array)) == npy(array)


# --- what is refused


@pytest.mark.parametrize(
    ("columns", "name", "message"),
    [
        ({"Label": "str"}, "Label", "the column's name is not an extension.*found label.*--rename NEW=Label"),
        ({"a/b": "str"}, "a/b", "the column's name is not an extension"),
        ({"x": "bytes[*]"}, "x", "a tar cannot hold lists of bytes.*--drop x"),
        ({"__key__": "int64", "txt": "str"}, "__key__", "keys must have type str.*--drop __key__"),
    ],
)
def test_columns_that_would_not_come_back_are_refused(
    tmp_path: Path, columns: dict[str, str], name: str, message: str
) -> None:
    path = write(tmp_path / "in", columns, [])
    with pytest.raises(UsageError, match=message) as raised:
        mdsx.export("tar", path, tmp_path / "out")
    assert raised.value.place == f"column {name!r}"
    assert not (tmp_path / "out").exists()


def test_a_key_alone_makes_no_tar(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"__key__": "str"}, [])
    with pytest.raises(UsageError, match="a tar needs a column besides the key"):
        mdsx.export("tar", path, tmp_path / "out")


@pytest.mark.parametrize(
    ("keys", "number", "message"),
    [
        (["a", "b.c"], 1, "the key has a dot, where readers would end it.*--key-until last-dot"),
        (["a", "b", "a"], 2, "sample 0 of the same tar has the same key.*--drop __key__"),
        ([""], 0, "the key results in a name that readers do not accept"),
        (["a\0b"], 0, "the key results in a name that readers do not accept"),
        (["x/.hidden"], 0, "the key has a dot"),
    ],
)
def test_keys_that_would_not_come_back_are_refused(tmp_path: Path, keys: list[str], number: int, message: str) -> None:
    path = write(tmp_path / "in", {"__key__": "str", "txt": "str"}, [{"__key__": key, "txt": ""} for key in keys])
    with pytest.raises(SampleError, match=message) as raised:
        mdsx.export("tar", path, tmp_path / "out")
    assert raised.value.place == f"sample {number}, column '__key__'"
    assert list((tmp_path / "out").glob("*.tar")) == []
    mdsx.export("tar", path, tmp_path / "numbers", drop=["__key__"])
    assert len(members(tmp_path / "numbers")) == len(keys)


def test_equal_keys_may_be_in_tars_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"__key__": "str", "txt": "str"}, [{"__key__": "a", "txt": "1"}] * 2)
    assert len(mdsx.export("tar", path, tmp_path / "out", file_samples=1).files) == 2


def test_keys_with_dots_come_back_with_last_dot(tmp_path: Path, back: Convert) -> None:
    path = write(tmp_path / "in", {"__key__": "str", "txt": "str"}, [{"__key__": "cam.1", "txt": "a"}])
    mdsx.export("tar", path, tmp_path / "out", key_until="last-dot")
    assert list(back(tmp_path / "out", "--key-until", "last-dot")) == [{"__key__": "cam.1", "txt": "a"}]
    with pytest.raises(UsageError, match="the column's name is not an extension"):
        mdsx.export("tar", path, tmp_path / "more", key_until="last-dot", rename={"a.txt": "txt"})


def test_a_sample_of_nulls_is_refused_because_it_would_be_lost(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"txt": "str?"}, [{"txt": "a"}, {"txt": None}])
    with pytest.raises(SampleError, match="all values of the sample are null") as raised:
        mdsx.export("tar", path, tmp_path / "out")
    assert raised.value.place == "sample 1"
