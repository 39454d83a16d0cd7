"""Any samples of any columns: mdsx and the reference read what was written."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdsx.format import MEDIA, NUMBERS, Encoder, Object, Schema, ShardBuilder, check_shard, parse_type
from tests.format import reference
from tests.format.test_vectors import read_shard


def _beginning(base: Object) -> bytes:
    """Return bytes with which a picture may begin."""
    begun = b""
    for offset, part in base.magic[0]:
        begun = begun.ljust(offset, b"?") + part
    return begun


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
    **{base.name: st.binary(max_size=9).map(_beginning(base).__add__) for base in MEDIA},
}


def _items(base: str, data: bytes, shape: tuple[int, ...]) -> Any:
    """Return arrays of `base` with any bits, bool of 0 and 1; of types that NumPy lacks, lists of what they hold."""
    size, number = int(np.prod(shape, dtype=int)), NUMBERS[base]
    bits = np.frombuffer((data * 64)[: 8 * size] or b"", np.uint64)
    if base == "bool":
        return (bits % 2 == 1).reshape(shape)
    items = bits.astype(f"u{number.item.itemsize}").view(number.item).reshape(shape)
    return number.numpy(items).tolist() if _is_listed(base) else items


def _is_listed(base: str) -> bool:
    """Return whether arrays come as nested lists, which have no shape if a dimension is 0."""
    return base in NUMBERS and base != "bool" and not NUMBERS[base].native


@st.composite
def columns_and_samples(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    columns: dict[str, str] = {}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for number in range(draw(st.integers(1, 5))):
        name, base = f"c{number}", draw(st.sampled_from([*NUMBERS, *_objects]))
        dims = draw(st.lists(st.none() | st.integers(int(_is_listed(base)), 3), max_size=3)) if base in NUMBERS else []
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
                sizes = st.integers(int(_is_listed(base)), 3)
                shape = tuple(draw(sizes) if dim is None else dim for dim in shapes[name])
                value = _items(base, draw(st.binary(min_size=8, max_size=16)) * 2, shape)
                sample[name] = value if _is_listed(base) else np.asarray(value).reshape(shape)[()]
        samples.append(sample)
    return columns, samples


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(columns_and_samples())
def test_written_samples_are_read_unchanged(made: tuple[dict[str, str], list[dict[str, Any]]]) -> None:
    columns, samples = made
    encoder, builder = Encoder(Schema.from_columns(columns)), ShardBuilder(Schema.from_columns(columns), 2**40)
    builder.add(encoder.gather([value for sample in samples for value in encoder.sample(sample)[0]]))
    shard = bytes(builder.finish())
    assert check_shard(shard) == []
    found = read_shard(shard)
    assert repr(found) == repr(reference.read_shard(shard))
    for sample, written in zip(found, samples, strict=True):
        for name, value in written.items():
            if _is_listed(parse_type(columns[name]).base) and isinstance(value, list):
                value = np.asarray(value, np.float32)
                assert sample[name]["items"] == reference.plain(value.reshape(-1).tolist())
            else:
                assert repr(sample[name]) == repr(reference.plain(value))
