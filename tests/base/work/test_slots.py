"""Parcels come through slots as they were packed. Nobody writes to a slot while an array still views it."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.base.work.memory import SharedNumbers
from mdsx.base.work.parcels import pack
from mdsx.base.work.slots import SlotReader, SlotWriter, found_in
from tests.forks import forked

PAGE = 4096
DTYPES = ["|u1", "|b1", "<u2", ">i4", "<i8", "<f2", "<f8", "<c8", "<M8[s]", "U3"]


class Pipe:
    """A writer and its reader."""

    def __init__(self, spare: int = 4, longest: int = 1) -> None:
        self.writer, self.reader, self._longest = SlotWriter(), SlotReader(spare), longest

    def send(self, *results: Any, views: bool = False) -> list[Any]:
        """Return the results of one message."""
        self.writer.returned(*self.reader.returns())
        self.writer.begin()
        sent = [self.writer.put(pack(result, views=views), self._longest) for result in results]
        for slot, size, descriptor in self.writer.new:
            self.reader.add(slot, size, descriptor)
        self.writer.new = []
        memory = self.reader.take({each.slot for each in sent if each.slot >= 0})
        return [found_in(each, memory) for each in sent]

    @property
    def slots(self) -> int:
        """Return how many slots are mapped."""
        return len(self.reader._memory)


def plain(values: Any) -> Any:
    """Return arrays as their bits, because they may hold NaN."""
    if isinstance(values, dict):
        return {name: plain(value) for name, value in values.items()}
    return (values.dtype, values.shape, values.tobytes()) if isinstance(values, np.ndarray) else values


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES))), draw(st.lists(st.integers(0, 4), max_size=3))
    count = int(np.prod(shape))
    if dtype.kind == "U":
        return np.full(shape, "ab")
    values = np.frombuffer(draw(st.binary(min_size=count * 8, max_size=count * 8)) + bytes(8), dtype)[:count]
    if dtype.kind == "b":
        values = values.view(np.uint8) % 2 == 0
    return draw(st.sampled_from([values.reshape(shape), values.reshape(shape).T, values[::2]]))


texts = st.lists(st.none() | st.text(st.characters(), max_size=20), max_size=8)
pieces = st.lists(st.none() | st.binary(max_size=40), max_size=8)
others = st.lists(st.none() | st.text(max_size=5) | st.integers() | st.binary(max_size=5), max_size=8)


@given(
    st.dictionaries(st.sampled_from("abc"), arrays()),
    st.dictionaries(st.sampled_from("xyz"), pieces | texts),
    st.dictionaries(st.sampled_from("opq"), others),
    st.sampled_from([1, 500]),
)
def test_results_come_as_they_were_packed(
    found: dict[str, Any], cut: dict[str, Any], rest: dict[str, Any], times: int
) -> None:
    result = {**rest, **found, **cut, "nested": (cut, [found]), "long": {"key": ["text" * times, b"x" * 3 * times]}}
    for received in Pipe().send(result, result):
        assert list(received) == list(result)
        for name in (*rest, *cut, "long"):
            assert received[name] == result[name]
            assert type(received[name]) is type(result[name])
        for name in found:
            assert plain(received[name]) == plain(found[name])
        assert received["nested"][0] == cut


@pytest.mark.parametrize("views", [False, True])
def test_memory_views_become_bytes_or_read_only_views(views: bool) -> None:
    values = [memoryview(b"some"), None, memoryview(b""), memoryview(b"more")]
    (found,) = Pipe().send({"a": values}, views=views)
    assert found["a"] == values
    for value in found["a"]:
        assert value is None or type(value) is (memoryview if views else bytes)
        assert not isinstance(value, memoryview) or value.readonly


class Pair(NamedTuple):
    first: Any
    second: Any


def test_named_tuples_and_classes_keep_their_types() -> None:
    error = ValueError("value", 3)
    (found,) = Pipe().send(Pair(np.arange(3), {"error": error}))
    assert type(found) is Pair
    assert found.first.tolist() == [0, 1, 2]
    assert found.second["error"].args == ("value", 3)


def test_surrogates_in_text_survive() -> None:
    assert Pipe().send({"a": ["\ud800", "b", None]}) == [{"a": ["\ud800", "b", None]}]


def test_a_memory_view_elsewhere_cannot_be_packed() -> None:
    with pytest.raises(TypeError, match="memoryview"):
        pack([{"a": memoryview(b"some")}])


def test_results_that_outgrow_their_slot_get_another_one() -> None:
    pipe = Pipe()
    found = pipe.send(*(np.full(PAGE * size, size, np.uint8) for size in (1, 1, 40, 2, 1)))
    assert [(len(values) // PAGE, set(values.tolist())) for values in found] == [(n, {n}) for n in (1, 1, 40, 2, 1)]
    assert pipe.slots == 2


def test_results_of_a_chunk_share_one_slot() -> None:
    """The first chunks are shorter: their slot has room for the longest."""
    pipe = Pipe(longest=8)
    for count in (1, 2, 4, 8, 8, 8):
        found = pipe.send(*(np.full(PAGE, number, np.uint8) for number in range(count)))
        assert [int(values[0]) for values in found] == list(range(count))
        del found
    assert pipe.slots == 1


# --- when a slot is free

LOOKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the array": lambda found: found["a"],
    "a slice": lambda found: found["a"][3:5],
    "another view": lambda found: found["a"].view(np.uint8).reshape(2, -1)[1:],
    "its buffer": lambda found: found["a"].data,
    "a memory view": lambda found: found["bytes"][1],
    "a slice of one": lambda found: found["bytes"][0][1:2],
    "an empty view": lambda found: found["bytes"][2],
    "an array of one": lambda found: np.frombuffer(found["bytes"][0], np.uint8)[1:],
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_slot_is_free_after_its_last_view(look: str) -> None:
    pipe, pieces = Pipe(), [memoryview(b"some"), memoryview(b"more"), memoryview(b"")]
    (found,) = pipe.send({"a": np.arange(8), "bytes": pieces}, views=True)
    held = LOOKS[look](found)
    del found
    gc.collect()
    assert pipe.reader.returns() == ([], [])
    del held
    assert pipe.reader.returns() == ([0], [])


def test_kept_results_get_slots_of_their_own() -> None:
    """A worker that lacks a slot makes another one. Those that are not needed later are unmapped."""
    pipe = Pipe(spare=2)
    kept = [pipe.send(np.full(PAGE, number))[0] for number in range(20)]
    assert pipe.slots == 20
    assert [set(values.tolist()) for values in kept] == [{number} for number in range(20)]
    del kept
    pipe.send(np.arange(3))
    assert pipe.slots <= 3
    for number in range(100):
        assert pipe.send(np.full(PAGE, number))[0][0] == number
    assert pipe.slots <= 3


def test_slots_visible_to_a_forked_child_are_never_overwritten() -> None:
    pipe = Pipe()
    (held,) = pipe.send(np.full(8, 7))
    asked, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(asked, 1)  # until the parent has written everything
        os._exit(0 if held.tolist() == [7] * 8 else 1)
    del held
    for _ in range(10):
        pipe.send(np.full(8, 9))
    os.close(go)
    os.close(asked)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_kept_results_hold_no_descriptor() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    pipe = Pipe()
    kept = [pipe.send(np.full(PAGE, number)) for number in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    del pipe
    gc.collect()
    assert [int(values[0]) for (values,) in kept] == list(range(50))


def test_memory_that_cannot_be_mapped_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    for module in ("slots", "memory"):
        monkeypatch.setattr(f"mdsx.base.work.{module}.map_file", refuse)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        Pipe().send(np.full(PAGE, 1))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        SharedNumbers(1)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_too_many_open_files_raise_naming_the_limit() -> None:
    def limited() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(mdsx.TransportError) as caught:
            Pipe().send(np.arange(3))
        return str(caught.value)

    error = forked(limited)
    assert "the workers' shared memory: the process has too many open files (expected at most 64" in error
    assert "ulimit -n" in error
