"""Ranges of a shard that is not local: few requests, the right bytes."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import ChangedError
from mdsx.format import FRAME_SIZE, compress
from mdsx.format.stored_bytes import FramedBytes, PlainBytes
from mdsx.shards.objects import StoredObject, coalesce, gap_in
from mdsx.storage import Piece, open_storage
from mdsx.storage.local import LocalStorage

POOL = ThreadPoolExecutor(4)
RANGES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)).map(lambda at: (at[0], at[0] + at[1])))


@given(RANGES, st.integers(0, 200))
def test_spans_cover_every_range_without_overlap(ranges: list[tuple[int, int]], gap: int) -> None:
    spans = coalesce(ranges, gap)
    assert sorted(number for span in spans for number in span.serves) == list(range(len(ranges)))
    for span in spans:
        assert span.start == min(ranges[number][0] for number in span.serves)
        assert span.stop == max(ranges[number][1] for number in span.serves)
    assert all(after.start > before.stop + gap for before, after in itertools.pairwise(spans))


@pytest.mark.parametrize(
    ("size", "gap"), [(2**16, 2**14), (2**20, 2**14), (2**21, 2**15), (2**22, 2**16), (2**40, 2**16)]
)
def test_less_is_read_between_ranges_of_small_objects(size: int, gap: int) -> None:
    assert gap_in(size) == gap


DATA = bytes(range(256)) * (3 * FRAME_SIZE // 256) + b"the last frame is shorter"
PLACES = [
    (5, 5),
    (0, 3),
    (FRAME_SIZE - 2, FRAME_SIZE + 2),
    (10, 2 * FRAME_SIZE + 10),
    (len(DATA) - 3, len(DATA)),
    (1, 4),
]


def stored(tmp_path: Path, data: bytes) -> StoredObject:
    (tmp_path / "shard").write_bytes(data)
    return StoredObject(open_storage(tmp_path), "shard", size=len(data), pool=POOL)


def test_an_uncompressed_shard_answers_its_ranges(tmp_path: Path) -> None:
    found = stored(tmp_path, DATA).run(PlainBytes().read(PLACES))
    assert [bytes(part) for part in found] == [DATA[low:high] for low, high in PLACES]


def test_a_compressed_shard_answers_ranges_of_its_raw_bytes(tmp_path: Path) -> None:
    packed = compress(DATA)
    shard, raw = stored(tmp_path, packed), FramedBytes(size=len(packed), raw_size=len(DATA), file="shard")
    for _ in range(2):
        assert [bytes(part) for part in shard.run(raw.read(PLACES))] == [DATA[low:high] for low, high in PLACES]


def test_a_replaced_object_is_not_read(tmp_path: Path) -> None:
    shard = stored(tmp_path, DATA)
    shard.read([(0, 10)])
    (tmp_path / "shard").write_bytes(DATA + b"more")
    with pytest.raises(ChangedError, match="shard"):
        shard.read([(0, 10)])


class ReplacedOften(LocalStorage):
    """A storage whose objects are replaced after each request."""

    asked = itertools.count()

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        return replace(super().get(key, start=start, stop=stop), etag=f"{next(self.asked)}")


def test_an_object_replaced_during_its_first_read_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(DATA)
    shard = StoredObject(ReplacedOften(str(tmp_path)), "shard", size=len(DATA), pool=POOL)
    with pytest.raises(ChangedError, match="ETag: the object was replaced"):
        shard.read([(0, 10), (len(DATA) - 10, len(DATA))])
