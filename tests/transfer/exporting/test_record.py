"""Files are cut by size, from the index alone; a record continues only its own export."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mdsx import CorruptError, UsageError
from mdsx.storage import open_storage
from mdsx.transfer.exporting.record import RECORD, ExportRecord, begin, cut, encode_record, finish

RECORDED = ExportRecord(1, "tar", "ab", {"a": "b"}, {"file_size": "10"}, {"data-00000.tar": 3, "data-00001.tar": 2})


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 300)), max_size=20), st.integers(1, 400))
@example([(4, 100), (4, 100), (4, 150), (10, 1000)], 250)
def test_files_have_all_samples_in_order_and_about_the_size(shards: list[tuple[int, int]], file_size: int) -> None:
    counts, sizes = [count for count, _ in shards], [size if count else 0 for count, size in shards]
    cuts = cut(np.array(counts, np.int64), np.array(sizes, np.int64), file_size)
    assert (cuts[0], cuts[-1]) == (0, sum(counts))
    assert all(start < stop for start, stop in pairwise(cuts)) or cuts == [0, 0]
    edges = np.cumsum([0, *counts])
    for start, stop in pairwise(cuts):
        parts = [(min(stop, last) - max(start, first)) / count * size
                 for first, last, count, size in zip(edges, edges[1:], counts, sizes, strict=False)
                 if count and min(stop, last) > max(start, first)]  # fmt: skip
        largest = max((size / count for size, count in zip(sizes, counts, strict=True) if count), default=0)
        assert sum(parts) <= file_size + largest + 1e-6  # a sample is not cut


def test_whole_shards_are_together_and_larger_ones_divided() -> None:
    counts, sizes = np.array([4, 4, 4, 10, 0, 1]), np.array([100, 100, 150, 1000, 0, 10])
    assert cut(counts, sizes, 250) == [0, 8, 12, 14, 17, 19, 22, 23]


def test_a_record_continues_only_its_own_export(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "out")
    assert begin(storage, RECORDED) == (RECORDED, set())
    storage.put("data-00001.tar", b"x")
    assert begin(storage, RECORDED) == (RECORDED, {"data-00001.tar"})
    finish(storage, RECORDED)
    assert begin(storage, RECORDED)[0].finished
    others = {
        "parquet, not tar": replace(RECORDED, kind="parquet"),
        "another dataset": replace(RECORDED, fingerprint="cd"),
        "columns {'a': 'c'}": replace(RECORDED, columns={"a": "c"}),
        "file_size 11, not 10": replace(RECORDED, options={"file_size": "11"}),
        "other files": replace(RECORDED, files={"data-00000.tar": 5}),
    }
    for message, other in others.items():
        with pytest.raises(UsageError, match=f"holds another export; this would be {message}"):
            begin(storage, other)


def test_a_damaged_record_and_one_of_another_version_are_errors(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "out")
    for damaged in (b"{}", encode_record(RECORDED).replace(b"tar", b"\xf4ar")):
        storage.put(RECORD, damaged)
        with pytest.raises(CorruptError, match=f"{RECORD}: not the record of an export"):
            begin(storage, RECORDED)
    storage.delete(RECORD)
    begin(storage, replace(RECORDED, version=2))
    with pytest.raises(UsageError, match="another version of mdsx began"):
        begin(storage, RECORDED)
