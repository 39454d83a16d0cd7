"""An invalid column type gets the nearest valid one as advice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.format import Schema
from mdsx.format.suggest import suggest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        # typos
        ("unit8", "uint8"),
        ("Int64", "int64"),
        ("msgpck", "msgpack"),
        ("uint16[2048", "uint16[2048]"),
        ("float32[3, 224]", "float32[3,224]"),
        ("float32(3,224)", "float32[3,224]"),
        ("float32[-1,3]", "float32[*,3]"),
        ("float32[None, 3]", "float32[*,3]"),
        ("float32[3x224]", "float32[3,224]"),
        ("integer?", "int32?"),
        # MosaicML's
        ("int", "int64"),
        ("str_int", "int64"),
        ("ndarray", "float32[*]"),
        ("ndarray:uint16", "uint16[*]"),
        ("ndarray:float32:3,224", "float32[3,224]"),
        ("pil", "jpeg"),
        ("list[jpeg]", "jpeg[*]"),
        ("pkl", "json"),
        # Python's, NumPy's, PyTorch's, pyarrow's
        ("list[str]", "str[*]"),
        ("Optional[int]", "int64?"),
        ("str | None", "str?"),
        ("dict", "json"),
        ("list[list[str]]", "json"),
        ("list[Optional[str]]", "json"),
        ("Optional[str?]", "str?"),
        ("[int]", "int64[*]"),
        ("int[]", "int64[*]"),
        ("np.float32", "float32"),
        ("np.longdouble", "float64"),
        ("<i4", "int32"),
        ("torch.long", "int64"),
        ("torch.float", "float32"),
        ("pa.list_(pa.string())", "str[*]"),
        ("list<item: string>", "str[*]"),
        ("large_binary", "bytes"),
        ("pa.string()", "str"),
        ("timestamp[us]", "int64"),
        ("timestamp[us, tz=UTC]", "int64"),
        (int, "int64"),
        (list[str], "str[*]"),
        (np.int32, "int32"),
        (np.dtype("u2"), "uint16"),
        (torch.bfloat16, "bfloat16"),
        # unlike any type
        ("xyz", None),
        ("32-bit", None),
        (",f8", None),
        ("", None),
        (None, None),
        ("[" * 10_000, None),
    ],
)
def test_the_nearest_type_is_suggested(asked: object, meant: str | None) -> None:
    assert suggest(asked) == meant


def test_a_wrong_type_is_refused_with_the_nearest_one() -> None:
    wrong: list[Any] = ["list[str]", "string", "pil", "ndarray:uint8", str]
    for asked, meant in zip(wrong, ["str[*]", "str", "jpeg", "uint8[*]", "str"], strict=True):
        with pytest.raises(mdsx.UsageError, match="column 'a'") as caught:
            Schema.from_columns({"a": asked})
        assert f"did you mean {meant!r}?" in str(caught.value)
        assert "upgrade" not in str(caught.value)
