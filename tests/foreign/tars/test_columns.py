"""Columns are declared or inferred from the first samples: by extension, and NumPy files by their arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike

from mdsx import SampleError
from mdsx.foreign.tars.columns import check_declared, infer_columns
from mdsx.foreign.tars.grouping import TarSample
from mdsx.foreign.tars.members import TarMember
from mdsx.foreign.tars.names import Names
from tests.foreign.tars.tars import npy


def sample(key: str, **members: bytes) -> TarSample:
    return TarSample(key, {name: TarMember(f"{key}.{name}", 0, data) for name, data in members.items()})


def inferred(
    samples: Sequence[TarSample],
    *,
    declared: dict[str, str] | None = None,
    names: Names | None = None,
    warn: Callable[[str], object] = lambda warning: None,
) -> dict[str, str]:
    columns = check_declared(declared or {})
    return infer_columns(samples, columns, file="x.tar", names=names or Names(), warn=warn)


def infer(*samples: TarSample, **declared: str) -> dict[str, str]:
    return inferred(samples, declared=declared)


def test_types_follow_the_extension() -> None:
    names = "cls id index txt text json jpg jpeg png bin seg.png x.txt"
    columns = infer(sample("1", **dict.fromkeys(names.split(), b"1")))
    assert " ".join(columns) == "__key__ " + names
    assert " ".join(columns.values()) == "str int64 int64 int64 str str json jpeg jpeg png bytes png str"


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ([np.zeros((2, 3), np.float32)] * 3, "float32[2,3]"),
        ([np.zeros((2, 3), np.float16), np.zeros((5, 3), np.float16)], "float16[*,3]"),
        ([np.zeros(n, np.uint16) for n in range(4)], "uint16[*]"),
        ([np.int64(7)], "int64"),
        ([np.zeros(4, ">i4")], "int32[4]"),
        ([np.zeros(4, bool)], "bool[4]"),
    ],
)
def test_a_numpy_column_has_its_arrays_type(arrays: list[ArrayLike], expected: str) -> None:
    samples = [sample(str(number), npy=npy(array)) for number, array in enumerate(arrays)]
    assert infer(*samples)["npy"] == expected


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros(2, np.int32), np.zeros(2, np.int64)], "differ in dtype"),
        ([np.zeros(2), np.zeros((2, 2))], "differ in dtype or number of dimensions"),
        ([np.zeros(2, complex)], "no column type for dtype complex128"),
        ([np.array(["text"])], "no column type for dtype <U4"),
    ],
)
def test_arrays_without_a_common_type_raise_with_advice(arrays: list[ArrayLike], message: str) -> None:
    samples = [sample(str(number), npy=npy(array)) for number, array in enumerate(arrays)]
    with pytest.raises(SampleError, match=f"{message}.*--column npy=bytes"):
        infer(*samples)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([b"1", b" -12\n", b"+5"], "int64"),
        ([npy(np.int64(7)), b"7"], "int64"),
        ([b"cat"], "str"),
        ([b"1", b"cat"], "str"),
        ([b"0.5"], "str"),
        ([b""], "str"),
        ([b"9223372036854775807"], "int64"),
        ([b"9223372036854775808"], "str"),
        ([b"9" * 5000], "str"),
        (["grün".encode()], "str"),
        ([b"1", b"\xff"], "bytes"),
    ],
)
def test_numbers_are_int64_unless_one_is_none(values: list[bytes], kind: str) -> None:
    for name in ("cls", "x.id"):
        assert infer(*(sample(str(number), **{name: data}) for number, data in enumerate(values)))[name] == kind


def test_a_number_among_names_warns() -> None:
    warnings: list[str] = []
    samples = [sample("1", cls=b"1"), sample("2", cls=b"cat")]
    inferred(samples, warn=warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith("x.tar: member '2.cls', offset 0: is not an int64, but others of column 'cls' are;")
    inferred(samples[1:], warn=warnings.append)
    inferred(samples, declared={"cls": "str"}, warn=warnings.append)
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("extensions", "kind"),
    [("jpg;jpeg", "jpeg"), ("jpg;png", "bytes"), ("jpg;webp", "bytes"), ("txt;text", "str"), ("cls;id", "int64"),
     ("npy;emb.npy", "float32[2]"), ("npy;jpg", "bytes"), ("seg.png;png", "png"), ("avif", "avif"), ("wav", "wav"),
     ("left.flac", "flac"), ("mp3", "mp3"), ("mp4;m4v", "mp4"), ("m4a", "bytes")],
)  # fmt: skip
def test_extensions_of_several_types_become_bytes(extensions: str, kind: str) -> None:
    names = Names.parse("first-dot", {"x": extensions}, ())
    first = extensions.split(";")[0]  # the types of all extensions count, even of those not yet seen
    data = npy(np.zeros(2, np.float32)) if "npy" in first else b"1"
    samples = [TarSample("1", {"x": TarMember(f"1.{first}", 0, data)})]
    assert inferred(samples, names=names)["x"] == kind


def test_declared_columns_override_and_add_to_inferred_ones() -> None:
    columns = infer(sample("1", cls=b"cat", bin=b""), cls="str", extra="int64?")
    assert columns == {"__key__": "str", "cls": "str", "bin": "bytes", "extra": "int64?"}


def test_the_extensions_of_most_samples_become_columns() -> None:
    odd, usual, more = sample("1", txt=b""), sample("2", txt=b"", cls=b""), sample("3", txt=b"", cls=b"", meta=b"")
    assert list(infer(odd, usual, more, usual, meta="json?")) == ["__key__", "txt", "cls", "meta"]


def test_invalid_column_names_raise_naming_the_member() -> None:
    for name in ('a"b', "__key__", "x" * 300):
        with pytest.raises(SampleError, match=r"x.tar: member .*1\."):
            infer(sample("1", **{name: b""}))
