"""A sample decoded by itself equals the same sample in a batch. A damaged one raises an error that names it."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from mdsx.errors import CorruptError
from mdsx.format import NULL, Encoder, Schema, ShardBuilder, ShardView
from mdsx.format.decode import SampleDecoder
from mdsx.shards import as_samples, present
from mdsx.shards.gather import gather
from tests.format import reference
from tests.format.test_round_trip import columns_and_samples

Sample = dict[str, Any]


def shard(columns: dict[str, str], samples: list[Sample]) -> bytes:
    schema = Schema.from_columns(columns)
    encoder, builder = Encoder(schema), ShardBuilder(schema, 2**40)
    builder.add(encoder.gather([value for sample in samples for value in encoder.sample(sample)[0]]))
    return bytes(builder.finish())


def decoder(view: ShardView, *names: str) -> SampleDecoder:
    """Return a decoder of the columns `names`, or of all columns."""
    numbers = {column.name: number for number, column in enumerate(view.schema.columns)}
    return SampleDecoder(view.schema, {name: numbers[name] for name in names or numbers})


def batch(view: ShardView) -> list[Sample]:
    """Return all samples, read together."""
    numbers = np.arange(view.samples)
    found = view.select(numbers, verify=True)
    sources = [(found, tuple(range(len(view.schema.columns))))]
    (columns,) = gather(view.schema, sources, numbers, [view.samples])
    return as_samples(present(view.schema, columns), view.samples)


def visible(value: Any) -> tuple[Any, ...]:
    """Return a value with all its visible attributes."""
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tobytes(), value.flags.writeable, value.flags.c_contiguous
    return type(value), repr(value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(columns_and_samples())
def test_a_sample_equals_itself_in_a_batch(made: tuple[dict[str, str], list[Sample]]) -> None:
    view = ShardView.parse(shard(*made))
    decode, together = decoder(view).decode, batch(view)
    for number, expected in enumerate(together):
        for verify in (False, True):
            found = decode(view, number, verify=verify)
            assert list(found) == list(expected)
            for name, value in expected.items():
                assert visible(found[name]) == visible(value), name


COLUMNS = {"n": "int16", "flag": "bool", "half": "bfloat16[2]", "text": "str", "list": "uint8[*]?", "data": "json"}


def sample(number: int) -> Sample:
    listed = None if number == 1 else np.arange(number, dtype=np.uint8)
    return {"n": -number, "flag": True, "half": [0.5, -1.0], "text": "ab" * number, "list": listed, "data": [number]}


def small(count: int = 3) -> bytes:
    return shard(COLUMNS, [sample(number) for number in range(count)])


def test_only_chosen_columns_are_decoded_under_their_new_names() -> None:
    view = ShardView.parse(small())
    found = SampleDecoder(view.schema, {"words": 3, "number": 0}).decode(view, 2, verify=True)
    assert list(found.items()) == [("words", "abab"), ("number", -2)]
    broken = bytearray(small())
    broken[broken.rindex(b"[2]")] = ord("x")
    view = ShardView.parse(broken)
    assert decoder(view, "text").decode(view, 2, verify=False) == {"text": "abab"}
    with pytest.raises(CorruptError, match="JSON"):
        decoder(view, "data").decode(view, 2, verify=False)


def test_an_array_is_a_writable_copy() -> None:
    data = bytearray(small())
    view, before = ShardView.parse(data), bytes(data)
    found = decoder(view).decode(view, 2, verify=True)
    found["half"][...] = 0
    found["list"][...] = 9
    assert bytes(data) == before


def test_a_decoder_may_be_pickled() -> None:
    view = ShardView.parse(small())
    again = pickle.loads(pickle.dumps(decoder(view, "text", "n", "list")))
    for number in range(3):
        found = again.decode(view, number, verify=True)
        assert list(found) == ["text", "n", "list"]
        assert repr(found) == repr(decoder(view, "text", "n", "list").decode(view, number, verify=True))


def test_a_shard_keeps_one_reader_for_equal_decoders() -> None:
    view = ShardView.parse(small())
    for _ in range(3):
        assert list(decoder(view, "text", "n").decode(view, 0, verify=True)) == ["text", "n"]
    assert len(view.readers) == 1
    assert list(decoder(view, "n", "text").decode(view, 0, verify=True)) == ["n", "text"]


# --- damage


@pytest.mark.parametrize("columns", [COLUMNS, {"n": "int16", "flag": "bool"}])
def test_a_flipped_byte_fails_only_its_own_sample(columns: dict[str, str]) -> None:
    """Each byte of rows, row padding and heap belongs to one sample: only this one raises."""
    data = shard(columns, [{name: sample(number)[name] for name in columns} for number in range(3)])
    whole = ShardView.parse(data, file="a shard")
    decode, size = decoder(whole).decode, whole.schema.row_size
    at = whole.rows_offset
    owners = {place: number for number in range(3) for place in range(at + number * size, at + (number + 1) * size)}
    heap, at = len(data) - len(whole.heap), 0
    if whole.schema.variable:
        for number, lengths in enumerate(whole.rows["lengths"]):
            for _ in range(sum(int(length) for length in lengths if length != NULL)):
                owners[heap + at] = number
                at += 1
    assert len(owners) == 3 * size + len(whole.heap)  # all of them
    plain = [repr(decode(whole, number, verify=True)) for number in range(3)]
    for place, owner in owners.items():
        for bit in (1, 0x80):
            changed = bytearray(data)
            changed[place] ^= bit
            view = ShardView.parse(changed, file="a shard")
            for number in range(3):
                if number != owner:
                    assert repr(decode(view, number, verify=True)) == plain[number]
                    continue
                with pytest.raises(CorruptError) as caught:
                    decode(view, number, verify=True)
                assert caught.value.file == "a shard"
                assert str(caught.value.place).startswith(f"sample {number}")


def test_a_row_in_another_place_is_found() -> None:
    """Its checksum is right for another number."""
    data = bytearray(small())
    view = ShardView.parse(data)
    size, at = view.schema.row_size, view.rows_offset
    data[at : at + size] = data[at + size : at + 2 * size]
    with pytest.raises(CorruptError, match="checksum"):
        decoder(view).decode(view, 0, verify=True)
    assert decoder(view).decode(view, 0, verify=False)["n"] == -1


def test_an_error_shows_the_checksum_that_the_sample_should_have() -> None:
    view = ShardView.parse(small())
    changed = reference.patch(bytes(view.buffer), view.rows_offset + view.schema.row_size, bytes(8))  # of sample 1
    with pytest.raises(CorruptError, match="checksum") as caught:
        decoder(view).decode(ShardView.parse(changed, file="a shard"), 1, verify=True)
    error = caught.value
    assert (error.file, error.place, error.expected) == ("a shard", "sample 1", "0" * 16)
    assert error.found == f"{reference.row_checksums(changed)[1] ^ view.row_key:016x}"


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize(
    ("start", "lengths", "problem"),
    [
        (2**64 - 1, (0, 4, 3), "outside the heap"),
        (0, (NULL - 1, NULL, 3), "outside the heap"),
        (0, (10_000, 4, 3), "outside the heap"),
        (0, (NULL, 4, 3), "column 'text'"),
        (0, (0, NULL, NULL), "column 'data'"),
    ],
)
def test_a_row_that_leaves_the_heap_is_refused_first(
    start: int, lengths: tuple[int, ...], problem: str, verify: bool
) -> None:
    view = ShardView.parse(small(), file="a shard")
    changed = bytearray(view.buffer)
    struct.pack_into("<Q3I", changed, view.rows_offset + 8, start, *lengths)
    view = ShardView.parse(changed, file="a shard")
    with pytest.raises(CorruptError, match=problem) as caught:
        decoder(view).decode(view, 0, verify=verify)
    assert caught.value.file == "a shard"


def test_invalid_bytes_raise_naming_sample_and_column() -> None:
    changed = bytearray(small())
    changed[changed.rindex(b"[2]")] = ord("x")
    view = ShardView.parse(reference.seal_rows(bytes(changed)), file="a shard")  # as a faulty writer would make it
    with pytest.raises(CorruptError, match="JSON") as caught:
        decoder(view).decode(view, 2, verify=True)
    assert (caught.value.file, caught.value.place) == ("a shard", "sample 2, column 'data'")
