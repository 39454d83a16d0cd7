"""The row key: no sample passes as a sample of another shard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import CorruptError
from mdsx.format import Encoder, Schema, ShardBuilder, ShardView, check_shard
from mdsx.format.decode import SampleDecoder
from mdsx.format.rows import row_key
from mdsx.format.shard import shard_checksums
from tests.format import by_the_book, reference
from tests.format.reference import get, patch, row_at

COLUMNS = {"id": "uint16", "text": "str"}
SCHEMA = Schema.from_columns(COLUMNS)
ALL = SampleDecoder(SCHEMA, {"id": 0, "text": 1})
TEXTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b", "bb"])), min_size=1, max_size=5)


def shard(values: list[tuple[int, str]]) -> bytes:
    samples = [{"id": number.to_bytes(2, "little"), "text": text.encode()} for number, text in values]
    return by_the_book.shard(COLUMNS, samples)


@given(TEXTS)
def test_a_builder_binds_all_rows_to_their_key(values: list[tuple[int, str]]) -> None:
    builder = ShardBuilder(SCHEMA, 2**20)
    ids, texts = zip(*values, strict=True)
    builder.add(Encoder(SCHEMA).batch({"id": np.array(ids, np.uint16), "text": list(texts)}))
    made = bytes(builder.finish())
    assert made == shard(values)
    view = ShardView.parse(made)
    assert view.row_key == row_key(SCHEMA, shard_checksums(view)) == get(made, "row_key")


@given(TEXTS, TEXTS)
def test_no_row_verifies_under_another_key(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> None:
    made, view = shard(one), ShardView.parse(shard(one))
    key = get(shard(other), "row_key")
    assert (key == view.row_key) == (one == other)
    if one != other:
        foreign = ShardView(view.buffer, None, SCHEMA, key, view.rows_offset, view.rows, view.heap)
        for sample in range(len(one)):
            with pytest.raises(CorruptError, match="checksum"):
                ALL.decode(foreign, sample, verify=True)
        (error,) = check_shard(made, row_key=key)
        assert error.place == "row key"


def test_a_row_of_another_shard_fails_the_check() -> None:
    one, other = shard([(1, "aa"), (2, "bb"), (3, "cc")]), shard([(1, "aa"), (9, "bb"), (3, "cd")])
    assert len(one) == len(other)
    for sample in range(3):
        row, size = row_at(one, sample), get(one, "row_size")
        mixed = patch(one, row, other[row : row + size])
        with pytest.raises(CorruptError, match="checksum"):
            ALL.decode(ShardView.parse(mixed), sample, verify=True)
        assert check_shard(mixed)


def test_a_damaged_checksum_of_undamaged_bytes_is_named() -> None:
    made = shard([(1, "aa"), (2, "bb"), (3, "cc")])
    damaged = patch(made, row_at(made, 1), bytes(8))
    (error,) = check_shard(damaged)
    assert (error.place, "its bytes are right" in str(error)) == ("sample 1", True)
    worse = patch(damaged, row_at(made, 2) + 20, b"!")  # now nothing proves the bytes of sample 1
    assert [problem.place for problem in check_shard(worse)][:1] == ["sample 1"]
    assert not any("its bytes are right" in str(problem) for problem in check_shard(worse))


def test_the_schema_is_part_of_the_key() -> None:
    one, other = (by_the_book.shard({name: "uint16"}, [{name: b"\1\0"}]) for name in ("a", "b"))
    assert get(one, "row_key") != get(other, "row_key")
    assert reference.row_checksums(one) == reference.row_checksums(other)
