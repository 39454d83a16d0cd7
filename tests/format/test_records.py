"""Records from anywhere in memory equal plain indexing, as copies that belong to the caller."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.format.records import read_joined, read_records

_SIMPLE = ["u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8"]
_shapes = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
_simple = st.sampled_from(_SIMPLE).map(np.dtype)
_fields = st.lists(_simple | st.builds(lambda kind, shape: np.dtype((kind, shape)), _simple, _shapes), min_size=1)
_structured = _fields.map(lambda kinds: np.dtype([(f"f{number}", kind) for number, kind in enumerate(kinds)]))
dtypes: st.SearchStrategy[np.dtype[Any]] = st.one_of(
    _simple, _structured, st.builds(lambda kind, shape: np.dtype((kind, shape)), _simple | _structured, _shapes)
)
Places = list[tuple[int, int]]  # block, byte of it


def block(data: bytes, mapped: bool) -> NDArray[np.uint8]:
    """Read-only memory with `data`: mapped from the kernel, or an array's."""
    if not mapped or not data:
        return np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return np.frombuffer(memory, np.uint8)


@st.composite
def records(draw: st.DrawFn) -> tuple[np.dtype[Any], list[NDArray[np.uint8]], Places, list[int]]:
    """A dtype, blocks of memory, records in them (some twice, some overlapping, most unaligned), and a cut."""
    dtype = draw(dtypes)
    blocks = [
        block(np.random.default_rng(draw(st.integers(0, 99))).bytes(dtype.itemsize + draw(st.integers(0, 99))), mapped)
        for mapped in draw(st.lists(st.booleans(), min_size=1, max_size=4))
    ]
    places = [
        (number, draw(st.integers(0, len(blocks[number]) - dtype.itemsize)))
        for number in draw(st.lists(st.integers(0, len(blocks) - 1), max_size=20))
    ]
    stops = sorted(draw(st.lists(st.integers(0, len(places)), max_size=4)))
    return dtype, blocks, places, np.diff([0, *stops, len(places)]).tolist()


def read(
    dtype: np.dtype[Any], blocks: Sequence[NDArray[np.uint8]], places: Places, sizes: list[int]
) -> list[NDArray[Any]]:
    addresses = np.array([blocks[number].ctypes.data + at for number, at in places], np.int64)
    return list(read_records(addresses, dtype, sizes))


@given(records())
def test_records_equal_plain_indexing(
    made: tuple[np.dtype[Any], list[NDArray[np.uint8]], Places, list[int]],
) -> None:
    dtype, blocks, places, sizes = made
    found = read(dtype, blocks, places, sizes)
    assert [len(part) for part in found] == sizes
    stops = np.cumsum(sizes).tolist()
    for part, start, stop in zip(found, [0, *stops[:-1]], stops, strict=True):
        assert (part.dtype, part.shape) == (dtype.base, (stop - start, *dtype.shape))
        for record, (number, at) in zip(part, places[start:stop], strict=True):
            plain = np.ndarray((1,), dtype, blocks[number], at)[0]  # an array of dtype's shape, or a scalar
            assert np.asarray(record).tobytes() == np.asarray(plain).tobytes()


@given(records())
def test_records_are_writable_copies(
    made: tuple[np.dtype[Any], list[NDArray[np.uint8]], Places, list[int]],
) -> None:
    dtype, blocks, places, sizes = made
    before = [each.tobytes() for each in blocks]
    found = read(dtype, blocks, places, sizes)
    kept = [part.copy() for part in found]
    for number, part in enumerate(found):
        assert part.flags.writeable
        assert part.flags.c_contiguous
        part[...] = np.zeros((), dtype.base)
        for other, copy in zip(found[number + 1 :], kept[number + 1 :], strict=True):
            assert other.tobytes() == copy.tobytes()
    assert [each.tobytes() for each in blocks] == before


@pytest.mark.parametrize("dtype", ["<i8", "(0,3)<f4", "(2,)u1"])
@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_empty_selections_have_the_right_shape(dtype: str, sizes: list[int]) -> None:
    kind = np.dtype(dtype)
    found = read(kind, [], [], sizes)
    assert [(part.dtype, part.shape) for part in found] == [(kind.base, (0, *kind.shape))] * len(sizes)


def three_pages() -> NDArray[np.uint8]:
    """Three pages of memory. The middle one is unreadable: reading it kills the process. The others begin with 64 bytes
    that count up from 0."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    memory[:64] = memory[2 * page : 2 * page + 64] = bytes(range(64))
    pages = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(pages.ctypes.data + page), ctypes.c_size_t(page), 0) == 0
    return pages


def test_bytes_between_the_records_are_not_read() -> None:
    page, pages = mmap.PAGESIZE, three_pages()
    (found,) = read(np.dtype("<u2"), [pages], [(0, 0), (0, 2 * page + 62), (0, 3)], [3])
    assert found.tolist() == [0x0100, 0x3F3E, 0x0403]


@pytest.mark.parametrize("step", [40, 8, 3, 0, -40])
@pytest.mark.parametrize("dtype", ["<f8", "<i2", "u1", "(3,)<f4", "i4,f8"])
@pytest.mark.parametrize("wrong", [None, 1, 150, 298])
def test_records_at_equal_distances_equal_plain_indexing(dtype: str, step: int, wrong: int | None) -> None:
    kind, memory = np.dtype(dtype), np.frombuffer(np.random.default_rng(7).bytes(13_000), np.uint8)
    places = 7 + np.arange(300) * step - min(step, 0) * 299
    if wrong is not None:
        places[wrong] += 1
    found = list(read_records(memory.ctypes.data + places, kind, [0, 299, 1]))
    expected = [bytes(memory[place : place + kind.itemsize]) for place in places.tolist()]
    assert b"".join(part.tobytes() for part in found) == b"".join(expected)
    assert [(part.dtype, part.shape) for part in found] == [(kind.base, (n, *kind.shape)) for n in (0, 299, 1)]
    assert all(part.flags.writeable and part.flags.c_contiguous for part in found)


@st.composite
def values(draw: st.DrawFn) -> tuple[list[NDArray[np.uint8]], list[tuple[int, int, int]]]:
    """Blocks of memory, and (block, start, size) of values in them: near one another, empty, of one size, or large."""
    blocks = [
        np.frombuffer(np.random.default_rng(number).bytes(draw(st.integers(1, 700))), np.uint8)
        for number in range(draw(st.integers(1, 3)))
    ]
    found, stop = [], 0
    sizes = draw(st.sampled_from([st.just(8), st.integers(0, 9), st.integers(0, 200), st.sampled_from([0, 4])]))
    for block in draw(st.lists(st.integers(0, len(blocks) - 1), max_size=60)):
        start = stop if draw(st.booleans()) else draw(st.integers(0, 700))
        start = min(start, len(blocks[block]))
        stop = min(start + draw(sizes), len(blocks[block]))
        found.append((block, start, stop - start))
    return blocks, found


def join(blocks: Sequence[NDArray[np.uint8]], places: list[tuple[int, int, int]]) -> bytes:
    addresses = np.array([blocks[block].ctypes.data + start for block, start, _ in places], np.int64)
    found = read_joined(addresses, np.array([size for _, _, size in places], np.int64))
    assert len(found) == sum(size for _, _, size in places)
    return bytes(found)


@given(values())
def test_joined_values_equal_plain_slices(made: tuple[list[NDArray[np.uint8]], list[tuple[int, int, int]]]) -> None:
    blocks, places = made
    assert join(blocks, places) == b"".join(bytes(blocks[block][at : at + size]) for block, at, size in places)


@pytest.mark.parametrize(
    "places",
    [
        [(0, 8), (8, 4), (16, 4)],  # only the first two are consecutive
        [(0, 8), (16, 8)],
        [(5, 100), (200, 150), (0, 90)],
    ],
)
def test_a_few_values_of_any_sizes_are_joined(places: list[tuple[int, int]]) -> None:
    memory = np.arange(350).astype(np.uint8)
    expected = b"".join(bytes(memory[at : at + size]) for at, size in places)
    assert join([memory], [(0, *place) for place in places]) == expected


def test_many_short_values_are_joined() -> None:
    memory = np.frombuffer(np.random.default_rng(3).bytes(2**20), np.uint8)
    places = [(0, 20 * number, number % 19) for number in range(20_000)]
    assert join([memory], places) == b"".join(bytes(memory[at : at + size]) for _, at, size in places)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 2, 3), (64, 64, 0), (60, 61, 62)])
def test_bytes_between_the_values_are_not_read(sizes: tuple[int, int, int]) -> None:
    page, pages = mmap.PAGESIZE, three_pages()
    places = [(0, 0, sizes[0]), (0, 2 * page, sizes[1]), (0, 1, sizes[2])]
    assert join([pages], places) == b"".join(bytes(range(at % 2, at % 2 + size)) for _, at, size in places)
