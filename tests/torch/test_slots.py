"""Slots return what was put unchanged. Nobody writes to a slot while an array still views it."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.shards import Columns
from mdsx.torch.slots import Slots
from tests.forks import forked

PAGE = 4096
DTYPES = ["|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]


def crossed(columns: Columns, size: int = 2**16, *, slot: bool = True, views: bool = False) -> Columns:
    """Return the columns after passing them through a slot of `size` bytes, or without one."""
    slots = Slots(1, size)
    number = slots.reserve() if slot else None
    return slots.take(number, slots.put(number, columns), views=views)


def plain(values: Any) -> Any:
    """Return arrays and tensors as their bits, because they may hold NaN."""
    if isinstance(values, torch.Tensor):
        values = values.numpy()
    return (values.dtype, values.shape, values.tobytes()) if isinstance(values, np.ndarray) else values


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES))), draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    count = int(np.prod(shape))
    return np.frombuffer(draw(st.binary(min_size=count * 8, max_size=count * 8)) + bytes(8), dtype)[:count].reshape(
        shape
    )


pieces = st.lists(st.none() | st.binary(max_size=40), max_size=8)
others = st.lists(st.none() | st.text(max_size=5) | st.integers() | st.binary(max_size=5), max_size=8)


@given(
    st.dictionaries(st.sampled_from("abc"), arrays()),
    st.dictionaries(st.sampled_from("xyz"), pieces),
    st.dictionaries(st.sampled_from("opq"), others),
    st.sampled_from([0, PAGE]),
    st.booleans(),
    st.booleans(),
)
def test_take_returns_what_was_put(
    tensors: dict[str, Any], cut: dict[str, Any], rest: dict[str, Any], size: int, slot: bool, views: bool
) -> None:
    """Arrays come as they are or as tensors, byte strings as bytes or, with views, as views that may not be written."""
    shown = {name: [piece if piece is None else memoryview(piece) for piece in cut[name]] for name in cut}
    found = crossed({**rest, **tensors, **shown}, size, slot=slot, views=views)
    assert list(found) == [*rest, *tensors, *shown]
    for name, values in rest.items():
        assert found[name] == values
    for name, values in tensors.items():
        assert plain(found[name]) == plain(values)
    for name, values in cut.items():
        assert found[name] == values
        for piece in found[name]:
            assert piece is None or type(piece) is (memoryview if views else bytes)
            assert not isinstance(piece, memoryview) or piece.readonly


def test_arrays_are_adjacent_tensors_in_the_slot() -> None:
    found = crossed({"a": np.arange(3, dtype=np.uint8), "b": np.arange(4.0), "c": np.zeros((2, 0), np.int16)})
    assert [found[name].dtype for name in "abc"] == [torch.uint8, torch.float64, torch.int16]
    assert found["b"].data_ptr() - found["a"].data_ptr() == 64
    found["a"][:] = 9
    assert found["b"].tolist() == [0, 1, 2, 3]


def test_values_without_room_are_copied() -> None:
    columns = {
        "small": np.arange(10),
        "large": np.arange(PAGE),
        "pieces": [memoryview(b"x" * PAGE), memoryview(b"y")],
        "fits": [memoryview(b"ab"), memoryview(b""), memoryview(b"c")],
    }
    slots = Slots(2, 1)  # at least a page
    slot = slots.reserve()
    placed = slots.put(slot, columns)
    assert isinstance(placed["large"], np.ndarray)
    assert not isinstance(placed["small"], np.ndarray)
    found = slots.take(slot, placed, views=False)
    for name in ("small", "large"):
        assert np.asarray(found[name]).tolist() == columns[name].tolist()  # type: ignore[attr-defined]
    assert found["pieces"] == [b"x" * PAGE, b"y"]
    assert found["fits"] == [b"ab", b"", b"c"]


def test_slots_do_not_overlap() -> None:
    slots = Slots(3, PAGE)
    numbers = [slots.reserve() for _ in range(3)]
    assert sorted(numbers) == [0, 1, 2]  # type: ignore[type-var]
    placed = [slots.put(number, {"a": np.full(PAGE, number, np.uint8)}) for number in numbers]
    found = [slots.take(number, columns, views=False) for number, columns in zip(numbers, placed, strict=True)]
    for number, columns in zip(numbers, found, strict=True):
        assert columns["a"].tolist() == [number] * PAGE


# --- when a slot is free

LOOKS: dict[str, Callable[[Columns], Any]] = {
    "the tensor": lambda found: found["a"],
    "a slice": lambda found: found["a"][3:5],
    "one item": lambda found: found["a"][3],
    "another view": lambda found: found["a"].view(torch.uint8).reshape(2, -1)[1:],
    "its storage": lambda found: found["a"].untyped_storage(),
    "its array": lambda found: found["a"].numpy()[2:],
    "a detached one": lambda found: found["a"].detach(),
    "an empty one": lambda found: found["none"],
    "a memory view": lambda found: found["bytes"][1],
    "a slice of one": lambda found: found["bytes"][0][1:2],
    "an empty view": lambda found: found["bytes"][2],
    "an array of one": lambda found: np.frombuffer(found["bytes"][0], np.uint8)[1:],
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_slot_is_free_after_its_last_view(look: str) -> None:
    slots = Slots(1, PAGE)
    slot = slots.reserve()
    assert slots.reserve() is None
    pieces = [memoryview(b"some"), memoryview(b"more"), memoryview(b"")]
    placed = slots.put(slot, {"a": np.arange(8), "none": np.zeros((0, 2)), "bytes": pieces})
    found = slots.take(slot, placed, views=True)
    assert slots.reserve() is None
    held = LOOKS[look](found)
    del found
    gc.collect()
    assert slots.reserve() is None
    del held
    gc.collect()
    assert slots.reserve() == slot


def test_slots_visible_to_a_forked_child_are_never_overwritten() -> None:
    """The child keeps the parent's batch unchanged for as long as it likes. Other slots remain in use."""
    slots = Slots(2, PAGE)
    first, second = slots.reserve(), slots.reserve()
    held = slots.take(first, slots.put(first, {"a": np.full(8, 7)}), views=False)
    asked, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(asked, 1)  # until the parent has written everything
        os._exit(0 if held["a"].tolist() == [7] * 8 else 1)
    del held
    gc.collect()
    slots.release_all()
    while (slot := slots.reserve()) is not None:
        assert slot == second
        slots.put(slot, {"a": np.full(8, 9)})
    os.close(go)
    os.close(asked)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_bytes_are_copies_that_hold_no_slot() -> None:
    slots = Slots(1, PAGE)
    slot = slots.reserve()
    found = slots.take(slot, slots.put(slot, {"a": [memoryview(b"some")]}), views=False)
    assert slots.reserve() == slot
    slots.put(slot, {"a": [memoryview(b"more")]})
    assert found["a"] == [b"some"]


def test_unused_requests_free_their_slots() -> None:
    slots = Slots(3, PAGE)
    taken, *asked = (slots.reserve() for _ in range(3))
    found = slots.take(taken, slots.put(taken, {"a": np.arange(3)}), views=False)
    slots.release_all()
    assert sorted([slots.reserve(), slots.reserve()]) == sorted(asked)  # type: ignore[type-var]
    assert slots.reserve() is None
    del found
    assert slots.reserve() == taken


def descriptors() -> set[str]:
    """Return the descriptors of this process that lead to memory of slots."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            if "memfd:mdsx" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(name)
    return found


def test_taken_arrays_outlive_the_slots() -> None:
    gc.collect()
    others = descriptors()
    slots = Slots(1, PAGE)
    slot = slots.reserve()
    found = slots.take(slot, slots.put(slot, {"a": np.arange(5), "b": [memoryview(b"some")]}), views=True)
    own = descriptors() - others
    del slots
    gc.collect()
    assert len(own & descriptors()) == len(own) - 1
    assert found["a"].tolist() == [0, 1, 2, 3, 4]
    assert found["b"] == [b"some"]


def test_too_many_open_files_raise_naming_the_limit() -> None:
    def limited() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(mdsx.TransportError) as caught:
            Slots(1, PAGE)
        return str(caught.value)

    error = forked(limited)
    assert "the workers' shared memory: the process has too many open files (expected at most 64" in error
    assert "ulimit -n" in error


def fill(slots: Slots, numbers: list[int], answers: Any) -> None:
    for slot in numbers:
        answers.put(slots.put(slot, {"a": np.full(3, slot), "b": [memoryview(b"from"), memoryview(b"%d" % slot)]}))


@pytest.mark.parametrize("method", ["fork", "forkserver"])  # test_ways has a spawned worker
def test_a_process_takes_what_another_puts(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    slots, answers = Slots(2, PAGE), context.SimpleQueue()
    numbers = [slots.reserve() for _ in range(2)]
    process = context.Process(target=fill, args=(slots, numbers, answers))
    process.start()
    for slot in numbers:
        assert slot is not None
        found = slots.take(slot, answers.get(), views=True)
        assert found["a"].tolist() == [slot] * 3
        assert found["b"] == [b"from", b"%d" % slot]
    process.join()
    assert process.exitcode == 0
