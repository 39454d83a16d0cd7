"""The lengths of samples of MDS datasets: of arrays that say their own shape, and by the table of offsets alone."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.foreign.mds.encodings import parse_encoding
from mdsx.foreign.mds.values import ArrayDecoder
from mdsx.format import length_rule
from mdsx.shards import View, lengths_of
from mdsx.shards import shards as shards_module
from mdsx.testing import far_disk
from tests.foreign.mds import plain

SIZES = [0, 1, 300, 7, 70_000]


def lengths(url: Path | str, column: str) -> list[int]:
    view = View([excerpt_of(mdsx.Dataset(url))])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = np.concatenate([np.arange(count) for count in view.counts])
    found: list[int] = lengths_of(view, column).of(shards, samples).tolist()
    return found


@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:int32", "bytes", "str"])
@pytest.mark.parametrize("others", [{}, {"id": "int"}, {"id": "int", "text": "str"}])
def test_arrays_and_bytes_have_lengths(tmp_path: Path, encoding: str, others: dict[str, str]) -> None:
    arrays, texts = [np.zeros(size, np.int32) for size in SIZES], ["x" * size for size in SIZES]
    tokens: dict[str, list[Any]] = {"bytes": [text.encode() for text in texts], "str": texts}
    samples = [{"tokens": each, "id": 3, "text": "ab"} for each in tokens.get(encoding, arrays)]
    columns = {"tokens": encoding, **others}
    chosen = [{name: each[name] for name in columns} for each in samples]
    plain.write_dataset(tmp_path / "data", columns, [chosen[:2], chosen[2:]], [])
    assert lengths(tmp_path / "data", "tokens") == SIZES


def test_a_mean_is_estimated_from_the_bytes_of_values(tmp_path: Path) -> None:
    columns = {"a": "str", "b": "bytes", "x": "ndarray:uint16:3", "y": "ndarray:uint16", "n": "int"}
    x = np.zeros(3, np.uint16)
    sample = {"a": "x" * 1000, "b": b"y" * 500, "x": x, "y": x, "n": 1}
    plain.write_dataset(tmp_path / "data", columns, [[sample] * 40, [sample] * 60], [])
    view = View([excerpt_of(mdsx.Dataset(tmp_path / "data"))])
    means = {name: lengths_of(view, name).mean for name in columns}
    assert means["a"] == means["b"] == pytest.approx(1515, abs=15)  # y has a header, and each shard a description
    assert means["x"] == 3
    assert means["y"] is means["n"] is None


def test_lengths_do_not_come_from_a_damaged_shard_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "open_storage", far_disk.open_far)
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
    plain.write_dataset(tmp_path / "data", {"n": "int"}, [[{"n": number} for number in range(50)]])
    url = f"{far_disk.SCHEME}{tmp_path / 'data'}"
    assert [sample["n"] for sample in mdsx.Dataset(url)] == list(range(50))
    (cached,) = (tmp_path / "cache").glob("*/*.mdsx")
    shard = bytearray(cached.read_bytes())
    shard[struct.unpack_from("<I", shard, 4 + 4 * 20)[0]] ^= 1  # sample 20, by the table of offsets
    cached.write_bytes(shard)
    assert lengths(url, "n") == list(range(50))


def test_an_array_of_two_dimensions_is_refused(tmp_path: Path) -> None:
    plain.write_dataset(tmp_path / "data", {"x": "ndarray"}, [[{"x": np.zeros((2, 2))}]], [])
    with pytest.raises(mdsx.CorruptError, match="sample 0"):
        lengths(tmp_path / "data", "x")


def test_the_length_of_an_array_is_the_number_of_its_values() -> None:
    for text, rule in (("ndarray", "values"), ("ndarray:int32", "values"), ("pil", None)):
        encoding = parse_encoding(text, "x", None)
        assert encoding is not None
        assert length_rule(encoding.type) == rule


@given(st.sampled_from([None, "int32", "uint8", "float64"]), st.lists(st.binary(max_size=40), max_size=20))
def test_lengths_of_hostile_arrays_are_those_of_their_decoder(dtype: str | None, values: list[bytes]) -> None:
    decoder, heap = ArrayDecoder(dtype), np.frombuffer(b"".join(values) + b"!", np.uint8)
    sizes = np.array([len(value) for value in values], np.int64)
    found = decoder.lengths(heap.ctypes.data + np.cumsum(sizes) - sizes, sizes)
    for value, length in zip(values, found.tolist(), strict=True):
        try:
            decoded = decoder(memoryview(value))
        except mdsx.CorruptError:
            continue
        assert length == (len(decoded) if decoded.ndim == 1 else -1)
