"""Indexed Parquet files stream, shuffle, mix and resume as datasets of ours do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.shards import View, lengths_of
from mdsx.storage import open_storage
from mdsx.storage.local import LocalStorage
from mdsx.torch import StreamingDataLoader, StreamingDataset

ROWS, PER_GROUP, FILES = 400, 25, 4


def table(start: int, stop: int) -> Any:
    rows = range(start, stop)
    return pa.table(
        {
            "id": rows,
            "text": [f"text {number} " * (number % 9) for number in rows],
            "tokens": pa.array([[number] * 64 for number in rows], pa.list_(pa.uint16(), 64)),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    step = ROWS // FILES
    for number in range(FILES):
        part = table(number * step, (number + 1) * step)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=PER_GROUP)
    mdsx.index_parquet(folder)
    return folder


@pytest.fixture
def s3_files(files: Path, s3_url: str) -> str:
    storage = open_storage(s3_url)
    for path in sorted(files.iterdir()):
        if path.name.startswith("part"):
            storage.put(f"data/{path.name}", path.read_bytes())
    mdsx.index_parquet(f"{s3_url}/data")
    return f"{s3_url}/data"


def test_an_index_is_the_same_everywhere(files: Path, s3_files: str) -> None:
    assert mdsx.Dataset(s3_files).fingerprint == mdsx.Dataset(files).fingerprint


@pytest.mark.parametrize("limit", [None, "6KB"])
def test_files_with_equal_footers_are_never_mixed_up(tmp_path: Path, limit: str | None) -> None:
    """Values of a fixed size give chunks of equal sizes, and without statistics, nothing in the footers differs."""
    values = [range(first, first + 100) for first in (0, 100, 5000, 5100)]
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, halves in zip(folders, (values[:2], values[2:]), strict=True):
        folder.mkdir()
        for number, half in enumerate(halves):
            file = folder / f"{number}.parquet"
            options: dict[str, Any] = {"row_group_size": 30, "write_statistics": False, "use_dictionary": False}
            pq.write_table(pa.table({"id": half}), file, compression="none", **options)
        mdsx.index_parquet(folder)
    (footer,) = {path.read_bytes()[-300:] for folder in folders for path in folder.glob("*.parquet")}
    assert b"PAR1" in footer
    cache = mdsx.Cache(tmp_path / "cache", limit)
    for folder, (first, second) in zip(folders, (values[:2], values[2:]), strict=True):
        for _ in range(2):
            assert [sample["id"] for sample in mdsx.Dataset(folder, cache=cache)] == [*first, *second]


# --- requests


class Counting:
    """Counts the requests to the files, and their bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[tuple[str, int, int]] = []
        get = LocalStorage.get

        def counted(storage: LocalStorage, key: str, **options: Any) -> Any:
            piece = get(storage, key, **options)
            if key.endswith(".parquet"):
                start = options.get("start", 0)
                self.requests.append((key, start, start + len(piece.data)))
            return piece

        monkeypatch.setattr(LocalStorage, "get", counted)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def test_a_projection_fetches_only_its_chunks(files: Path, tmp_path: Path, counting: Counting) -> None:
    data = mdsx.Dataset(files, columns=["id"], cache=tmp_path)
    assert [sample["id"] for sample in data] == list(range(ROWS))
    expected = []
    for number in range(FILES):
        path = files / f"part-{number}.parquet"
        metadata, size = pq.read_metadata(path), path.stat().st_size
        expected.append((path.name, size - 8 - metadata.serialized_size, size))
        for group in range(metadata.num_row_groups):
            chunk = metadata.row_group(group).column(0)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            expected.append((path.name, start, start + chunk.total_compressed_size))
    assert sorted(counting.requests) == sorted(expected)
    counting.requests.clear()
    list(mdsx.Dataset(files, columns=["id"], cache=tmp_path))
    assert not counting.requests  # all row groups are in the cache


def test_a_mean_length_is_estimated_from_the_columns_own_bytes(tmp_path: Path) -> None:
    means = []
    for number, size in enumerate((1, 1000)):
        tokens = [[each * k % 60_000 for k in range(50)] for each in range(200)]
        ids = pa.array(range(200), pa.int32())
        (tmp_path / str(number)).mkdir()
        made = pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32())), "text": ["x" * size] * 200, "id": ids})
        pq.write_table(made, tmp_path / str(number) / "a.parquet", use_dictionary=False)
        mdsx.index_parquet(tmp_path / str(number))
        view = View([excerpt_of(mdsx.Dataset(tmp_path / str(number)))])
        assert lengths_of(view, "id").mean is None
        means.append(lengths_of(view, "tokens").mean)
    assert means[0] == means[1] == pytest.approx(50, rel=0.1)


def test_an_index_reads_only_footers(files: Path, counting: Counting, tmp_path: Path) -> None:
    """One request for each footer, and two more for the sizes of values in dictionaries."""
    mdsx.index_parquet(files, index=tmp_path)
    assert [key for key, _, _ in counting.requests[:FILES]].sort() == [f"part-{n}.parquet" for n in range(FILES)].sort()
    assert len(counting.requests) <= FILES + 2


# --- files that changed


def replaced(folder: Path) -> Path:
    for number in range(2):
        pq.write_table(table(number * 50, number * 50 + 50), folder / f"{number}.parquet", row_group_size=25)
    mdsx.index_parquet(folder)
    return folder / "1.parquet"


@pytest.mark.parametrize("how", ["grew", "shrank", "much shorter", "same size", "only its data", "deleted"])
def test_a_file_that_changed_is_an_error_that_says_to_index_again(tmp_path: Path, how: str) -> None:
    path = replaced(tmp_path)
    before = path.read_bytes()
    if how == "grew":
        pq.write_table(table(50, 120), path, row_group_size=25)
    elif how == "shrank":
        path.write_bytes(before[:-100])
    elif how == "much shorter":
        pq.write_table(table(50, 51).select(["id"]), path)
    elif how == "same size":
        path.write_bytes(before[:-20] + bytes([before[-20] ^ 1]) + before[-19:])
    elif how == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"PAR1" + os.urandom(len(before) - 2000) + before[-1996:])
    data = mdsx.Dataset(tmp_path, cache=tmp_path / "cache")
    assert data[49]["id"] == 49
    kinds = {"deleted": mdsx.MissingError, "only its data": mdsx.CorruptError, "much shorter": mdsx.TruncatedError}
    kind = kinds.get(how, mdsx.ChangedError)
    with pytest.raises(kind, match=r"1\.parquet") as raised:
        data[50]
    if kind is not mdsx.CorruptError:
        assert "mdsx index parquet" in str(raised.value)
    (problem, *_) = mdsx.verify(tmp_path)
    assert "1.parquet" in str(problem)


def test_a_value_that_does_not_fit_its_declared_type_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(2000)}), tmp_path / "0.parquet", row_group_size=1500)
    with pytest.raises(
        mdsx.CorruptError, match=r"sample 128 .*does not fit int8 .*; .*`mdsx index parquet` again, with --column"
    ):
        mdsx.index_parquet(tmp_path, columns={"id": "int8"})  # it looks at the first rows
    pq.write_table(pa.table({"id": [number // 10 for number in range(2000)]}), tmp_path / "0.parquet")
    mdsx.index_parquet(tmp_path, columns={"id": "int8"})
    data = mdsx.Dataset(tmp_path, cache=tmp_path / "cache")
    with pytest.raises(mdsx.CorruptError, match=r"does not fit int8 .*; .*`mdsx index parquet` again, with --column"):
        data[0]


def test_a_file_replaced_after_its_footer_was_read_is_an_error(tmp_path: Path) -> None:
    path = replaced(tmp_path)
    data = mdsx.Dataset(tmp_path, cache=tmp_path / "cache")
    assert data[50]["id"] == 50
    again = path.read_bytes()
    path.unlink()
    path.write_bytes(again)  # another ETag
    with pytest.raises(mdsx.ChangedError, match=r"1\.parquet"):
        data[75]
    assert mdsx.Dataset(tmp_path, cache=tmp_path / "cache")[75]["id"] == 75


def test_a_damaged_row_group_is_skipped_on_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pq.write_table(table(0, 200), tmp_path / "0.parquet", row_group_size=25, write_page_checksum=True)
    mdsx.index_parquet(tmp_path)
    chunk = pq.read_metadata(tmp_path / "0.parquet").row_group(3).column(1)
    damaged = bytearray((tmp_path / "0.parquet").read_bytes())
    damaged[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
    (tmp_path / "0.parquet").write_bytes(damaged)
    dataset = StreamingDataset(tmp_path, cache=tmp_path / "cache")
    seen = [n for batch in StreamingDataLoader(dataset, 10, on_error="skip") for n in batch["id"].tolist()]
    assert sorted(seen) == [*range(75), *range(100, 200)]
    assert len([record for record in caplog.records if "row group 3, column 'text'" in record.message]) == 25
    with pytest.raises(mdsx.CorruptError, match="row group 3, column 'text'"):
        list(StreamingDataLoader(StreamingDataset(tmp_path, cache=tmp_path / "cache"), 10))
