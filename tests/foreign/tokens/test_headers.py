"""Headers of token files: what is recognised, and what is refused."""

from __future__ import annotations

import random
import re
import struct
from io import BytesIO

import numpy as np
import pytest

import mdsx
from mdsx.foreign.tokens import LLM_C, MegatronIndex, ends_hash, ends_of, item_size_of, read_raw_header
from tests.conftest import Often

MAGIC = b"MMIDIDX\0\0"


def megatron(version: int = 1, code: int = 8, sequences: int = 3, bounds: int = 4) -> bytes:
    return struct.pack("<9sQBQQ", MAGIC, version, code, sequences, bounds)


def test_a_megatron_index_says_where_its_arrays_are() -> None:
    found = MegatronIndex.parse(megatron(), size=34 + 36 + 32, file="x.idx")
    assert (found.dtype, found.sequences, found.bounds, found.modes) == ("uint16", 3, 4, False)
    assert (found.sizes(1, 3), found.pointers(0, 1), found.documents(0, 4)) == ((38, 46), (46, 54), (70, 102))
    assert MegatronIndex.parse(megatron(), size=34 + 36 + 32 + 3, file="x.idx").modes
    assert found.mode(0, 3) == (102, 105)


@pytest.mark.parametrize(
    ("head", "size", "message"),
    [
        (b"TNTIDX\0\0" + bytes(40), 102, "not the index of a Megatron dataset"),
        (megatron()[:20], 20, "truncated in its header"),
        (megatron(version=2), 102, "unknown version"),
        (megatron(code=9), 102, "unknown dtype"),
        (megatron(), 101, "has another size"),
        (megatron(sequences=2**60), 102, "has another size"),
        (megatron(bounds=2**64 - 1), 102, "has another size"),
    ],
)
def test_a_hostile_megatron_index_is_refused(head: bytes, size: int, message: str) -> None:
    with pytest.raises(mdsx.FormatError, match=message) as caught:
        MegatronIndex.parse(head, size=size, file="x.idx")
    assert caught.value.file == "x.idx"


def test_raw_tokens_have_no_header() -> None:
    found = read_raw_header(bytes(64), size=64, dtype="uint16", file="x.npy")
    assert (found.kind, found.dtype, found.start, found.tokens) == ("none", "uint16", 0, 32)
    with pytest.raises(mdsx.UsageError, match=r"no header .*--dtype uint16"):
        read_raw_header(bytes(64), size=64, dtype=None, file="x.npy")
    with pytest.raises(mdsx.CorruptError, match="not an array of such tokens"):
        read_raw_header(bytes(63), size=63, dtype="uint16", file="x.npy")


@pytest.mark.parametrize("shape", [(12,), (3, 4), ()])
def test_a_numpy_header_is_recognised(shape: tuple[int, ...]) -> None:
    stream = BytesIO()
    np.save(stream, np.zeros(shape, "<u4"))
    data = stream.getvalue()
    found = read_raw_header(data, size=len(data), dtype=None, file="x.npy")
    assert (found.kind, found.dtype, found.start) == ("NumPy", "uint32", 128)
    assert found.tokens == np.prod(shape, dtype=int)
    with pytest.raises(mdsx.UsageError, match=r"another type of tokens .*expected uint16, found uint32"):
        read_raw_header(data, size=len(data), dtype="uint16", file="x.npy")
    with pytest.raises(mdsx.CorruptError, match="size differs from its header"):
        read_raw_header(data, size=len(data) + 1, dtype=None, file="x.npy")


WIDE = np.zeros(3, np.longdouble)  # float128 on most machines


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, ">u2"),
        np.zeros((2, 2), "<u2", order="F"),
        np.array(["a"]),
        pytest.param(WIDE, marks=pytest.mark.skipif(WIDE.itemsize == 8, reason="longdouble is float64 here")),
    ],
)
def test_other_numpy_files_are_refused(array: np.ndarray) -> None:
    stream = BytesIO()
    np.save(stream, array)
    with pytest.raises(mdsx.UnsupportedError, match=f"cannot be read in place .*found {re.escape(str(array.dtype))}"):
        read_raw_header(stream.getvalue(), size=len(stream.getvalue()), dtype=None, file="x.npy")


@pytest.mark.parametrize(("magic", "version", "dtype"), [(20240520, 1, "uint16"), (20240801, 7, "uint32")])
def test_the_header_of_llm_c_is_recognised(magic: int, version: int, dtype: str) -> None:
    head = np.zeros(256, "<i4")
    head[:3] = magic, version, 10
    size = LLM_C + 10 * np.dtype(dtype).itemsize
    found = read_raw_header(head.tobytes(), size=size, dtype=None, file="x.bin")
    assert (found.kind, found.dtype, found.start, found.tokens) == ("llm.c", dtype, LLM_C, 10)
    with pytest.raises(mdsx.CorruptError, match="size differs from its header"):
        read_raw_header(head.tobytes(), size=size - 1, dtype=None, file="x.bin")


def test_damaged_headers_raise_only_errors_of_mdsx(often: Often) -> None:
    chance, stream = random.Random(3), BytesIO()
    np.save(stream, np.zeros(50, "<u2"))
    heads = [stream.getvalue(), megatron() + bytes(68), np.array([20240520, 1, -5], "<i4").tobytes()]
    for _ in range(often(300, 20_000)):
        data = bytearray(chance.choice(heads))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = bytes(data[: chance.randrange(len(data) + 1)])
        for parse in (
            lambda: read_raw_header(cut, size=len(data), dtype=None, file="x"),  # noqa: B023
            lambda: MegatronIndex.parse(cut, size=len(data), file="x"),  # noqa: B023
        ):
            try:
                parse()
            except mdsx.MdsxError:
                continue


def test_the_item_size_follows_from_sizes() -> None:
    assert item_size_of(400, 100, file="x.ds") == 4
    assert item_size_of(0, 0, file="x.ds") == 2
    for size, tokens in ((401, 100), (300, 100), (10, 100), (5, 0)):
        with pytest.raises(mdsx.CorruptError, match=r"the file does not match its .ds.index"):
            item_size_of(size, tokens, file="x.ds")


def test_the_ends_of_a_file_are_at_most_128_kib() -> None:
    assert ends_of(10) == [(0, 10), (0, 10)]
    assert ends_of(10**10) == [(0, 2**16), (10**10 - 2**16, 10**10)]
    assert ends_hash([b"a", b"b"]) != ends_hash([b"a", b"c"])
