"""Any samples of any columns: mdsx and the reference read what was written."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdsx.format import Encoder, Schema, ShardBuilder, check_shard
from tests.format import reference
from tests.format.test_vectors import read_shard

_INTEGERS = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES = {
    "bool": "bool",
    **{base: base for base in _INTEGERS},
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
}
_SCALARS = [*_DTYPES, "bfloat16"]

_numbers = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
_msgpack = st.recursive(
    _numbers | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=6,
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_objects: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=20),
    "str": st.text(max_size=10),
    "json": _json,
    "msgpack": _msgpack,
    "jpeg": st.binary(max_size=9).map(b"\xff\xd8\xff".__add__),
    "png": st.binary(max_size=9).map(b"\x89PNG\r\n\x1a\n".__add__),
}


def _items(base: str, data: bytes, shape: tuple[int, ...]) -> Any:
    """Return arrays of `base` with any bits; bfloat16 as float32 that it can hold, bool of 0 and 1."""
    size = int(np.prod(shape, dtype=int))
    bits = np.frombuffer((data * 64)[: 8 * size] or b"", np.uint64)
    if base == "bool":
        return (bits % 2 == 1).reshape(shape)
    if base == "bfloat16":
        return ((bits % 2**16).astype(np.uint32) << 16).view(np.float32).reshape(shape).tolist()
    dtype = np.dtype(_DTYPES[base])
    items = bits.astype(f"u{dtype.itemsize}").view(dtype)
    return items.reshape(shape)


def _least(base: str) -> int:
    """Return the least dimension: bfloat16 comes as nested lists, which have no shape if a dimension is 0."""
    return 1 if base == "bfloat16" else 0


@st.composite
def columns_and_samples(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    columns: dict[str, str] = {}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for number in range(draw(st.integers(1, 5))):
        name, base = f"c{number}", draw(st.sampled_from([*_SCALARS, *_objects]))
        dims = draw(st.lists(st.none() | st.integers(_least(base), 3), max_size=3)) if base in _SCALARS else []
        shapes[name] = tuple(dims)
        brackets = f"[{','.join('*' if dim is None else str(dim) for dim in dims)}]" if dims else ""
        brackets = draw(st.sampled_from(["", "[*]"])) if base in _objects else brackets
        columns[name] = base + brackets + draw(st.sampled_from(["", "?"]))
    samples = []
    for _ in range(draw(st.integers(1, 6))):
        sample: dict[str, Any] = {}
        for name, text in columns.items():
            base = text.split("[")[0].rstrip("?")
            if text.endswith("?") and draw(st.booleans()):
                sample[name] = None
            elif base in _objects:
                sample[name] = draw(st.lists(_objects[base], max_size=3) if "[" in text else _objects[base])
            else:
                shape = tuple(draw(st.integers(_least(base), 3)) if dim is None else dim for dim in shapes[name])
                value = _items(base, draw(st.binary(min_size=8, max_size=16)) * 2, shape)
                sample[name] = np.asarray(value).reshape(shape)[()] if base != "bfloat16" else value
        samples.append(sample)
    return columns, samples


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(columns_and_samples())
def test_written_samples_are_read_unchanged(made: tuple[dict[str, str], list[dict[str, Any]]]) -> None:
    columns, samples = made
    encoder, builder = Encoder(Schema.from_columns(columns)), ShardBuilder(Schema.from_columns(columns), 2**40)
    builder.add(encoder.gather([encoder.sample(sample)[0] for sample in samples]))
    shard = bytes(builder.finish())
    assert check_shard(shard) == []
    found = read_shard(shard)
    assert repr(found) == repr(reference.read_shard(shard))
    for sample, written in zip(found, samples, strict=True):
        for name, value in written.items():
            if columns[name].startswith("bfloat16") and isinstance(value, list):
                value = np.asarray(value, np.float32)
                assert sample[name]["items"] == reference.plain(value.reshape(-1).tolist())
            else:
                assert repr(sample[name]) == repr(reference.plain(value))
