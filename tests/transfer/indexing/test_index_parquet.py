"""`index_parquet`: which files, in which order, with which columns; where the index is; what it warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx.storage import open_storage
from mdsx.transfer.indexing import parquet
from tools.servers.http import HttpServer
from tools.servers.hub import Hub

INDEX = "_mdsx-parquet.json"


def write(path: Path, start: int = 0, stop: int = 10, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(start, stop), **columns}), path, row_group_size=4)


def ids(url: Any, tmp_path: Path, **options: Any) -> list[int]:
    return [int(sample["id"]) for sample in mdsx.Dataset(url, cache=tmp_path / ".cache", **options)]


def test_a_folder_is_indexed_in_the_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for place, name in enumerate(["a/z.parquet", "a.parquet", "b/0.parquet"]):
        write(folder / name, place * 10, place * 10 + 5)
    for name in (".hidden.parquet", "_temporary/0.parquet", "_x.parquet", ".git/x.parquet", "_SUCCESS", "a.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not Parquet")
    found = mdsx.index_parquet(folder)
    assert (found.url, found.files, found.samples, found.shards) == (str(folder), 3, 15, 6)
    assert ids(folder, tmp_path) == [10, 11, 12, 13, 14, 0, 1, 2, 3, 4, 20, 21, 22, 23, 24]


def test_several_files_and_folders_have_the_index_of_their_common_folder(tmp_path: Path) -> None:
    for place, name in enumerate(["x/a/1.parquet", "x/b/2.parquet", "x/b/3.parquet", "x/other.parquet"]):
        write(tmp_path / name, place * 10, place * 10 + 2)
    found = mdsx.index_parquet([tmp_path / "x/b", tmp_path / "x/a/1.parquet"])
    assert found.url == str(tmp_path / "x")
    assert ids(tmp_path / "x", tmp_path) == [10, 11, 20, 21, 0, 1]
    with pytest.raises(mdsx.UsageError, match=r"named twice"):
        mdsx.index_parquet([tmp_path / "x/b", tmp_path / "x/b/2.parquet"])
    assert mdsx.index_parquet(tmp_path / "x/a/1.parquet").url == str(tmp_path / "x/a")


def test_urls_of_s3(tmp_path: Path, s3_url: str) -> None:
    write(tmp_path / "0.parquet")
    storage = open_storage(s3_url)
    for key in (
        "out.parquet/part-0.parquet",
        "out.parquet/part-1.parquet",
        "out.parquet.old/part-0.parquet",
        "x.parquet",
    ):
        storage.put(key, (tmp_path / "0.parquet").read_bytes())
    found = mdsx.index_parquet(f"{s3_url}/out.parquet/")  # a folder, as Spark names them
    assert (found.url, found.files) == (f"{s3_url}/out.parquet", 2)
    assert mdsx.index_parquet([f"{s3_url}/x.parquet", f"{s3_url}/out.parquet"]).files == 3
    assert ids(s3_url, tmp_path) == [*range(10)] * 3
    assert b'"etag":["\\"' in storage.get(INDEX).data
    with pytest.raises(mdsx.UsageError, match="different storages"):
        mdsx.index_parquet([f"{s3_url}/x.parquet", tmp_path])


def test_the_index_may_be_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "data/0.parquet")
    found = mdsx.index_parquet(tmp_path / "data", index=tmp_path / "index")
    assert found.url == str(tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["0.parquet"]
    assert ids(tmp_path / "data", tmp_path, index=tmp_path / "index") == [*range(10)]


def test_files_of_the_hub_and_of_web_servers_are_indexed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "new/data/0.parquet")
    write(tmp_path / "new/data/a b%.parquet", 10, 15)
    with Hub(tmp_path / "hub") as hub:
        for name, value in hub.env().items():
            monkeypatch.setenv(name, value)
        hub.publish("org/set", tmp_path / "new")
        url = "hf://datasets/org/set/data"
        with pytest.raises(mdsx.UsageError, match="read-only"):
            mdsx.index_parquet(url)
        assert mdsx.index_parquet(url, index=tmp_path / "index").samples == 15
        assert ids(url, tmp_path, index=tmp_path / "index") == [*range(15)]
        assert mdsx.index_parquet(f"{url}/0.parquet", index=tmp_path / "one").samples == 10
    with HttpServer(tmp_path / "new") as server:
        urls = [server.url("data/0.parquet"), server.url("data/a b%.parquet")]
        found = mdsx.index_parquet(urls, index=tmp_path / "other")
        assert found.files == 2
        assert ids(server.url("data"), tmp_path, index=tmp_path / "other") == [*range(15)]
        with pytest.raises(mdsx.MissingError):
            mdsx.index_parquet(server.url("data/none.parquet"), index=tmp_path / "other")
        with pytest.raises(mdsx.UsageError, match="must not have a query"):
            mdsx.index_parquet(f"{urls[0]}?sig=secret", index=tmp_path / "other")


def test_an_index_is_repeatable_and_replaces_its_own(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet")
    mdsx.index_parquet(tmp_path)
    first = (tmp_path / INDEX).read_bytes()
    mdsx.index_parquet(tmp_path)
    assert (tmp_path / INDEX).read_bytes() == first
    write(tmp_path / "1.parquet", 10, 15)
    assert mdsx.index_parquet(tmp_path).samples == 15
    with pytest.raises(mdsx.UsageError, match=r"1\.parquet.*--replace-index"):
        mdsx.index_parquet(tmp_path / "0.parquet")
    assert mdsx.index_parquet(tmp_path / "0.parquet", replace_index=True).samples == 10
    mdsx.index_parquet(tmp_path)
    (tmp_path / "1.parquet").unlink()
    assert mdsx.index_parquet(tmp_path).samples == 10  # the other file no longer exists
    (tmp_path / INDEX).write_bytes(b"damaged")
    assert mdsx.index_parquet(tmp_path).samples == 10


def test_an_index_elsewhere_is_not_replaced_by_that_of_other_files(tmp_path: Path) -> None:
    write(tmp_path / "one" / "0.parquet")
    write(tmp_path / "two" / "1.parquet", 10, 15)
    mdsx.index_parquet(tmp_path / "one", index=tmp_path / "index")
    with pytest.raises(mdsx.UsageError, match=r"is of other Parquet files, such as '0\.parquet'; .*--replace-index"):
        mdsx.index_parquet(tmp_path / "two", index=tmp_path / "index")
    assert ids(tmp_path / "one", tmp_path, index=tmp_path / "index") == [*range(10)]
    mdsx.index_parquet(tmp_path / "two", index=tmp_path / "index", replace_index=True)
    assert ids(tmp_path / "two", tmp_path, index=tmp_path / "index") == [*range(10, 15)]
    write(tmp_path / "two" / "2.parquet", 15, 20)
    mdsx.index_parquet(tmp_path / "two", index=tmp_path / "index")  # its own
    assert ids(tmp_path / "two", tmp_path, index=tmp_path / "index") == [*range(10, 20)]


def test_another_dataset_at_the_place_is_an_error(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"id": "int64"}) as out:
        out.write({"id": 1})
    write(tmp_path / "0.parquet")
    with pytest.raises(mdsx.UsageError, match="another dataset is here"):
        mdsx.index_parquet(tmp_path)


def test_places_without_parquet_are_missing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    for url in (tmp_path, tmp_path / "none", tmp_path / "a.txt/x"):
        with pytest.raises(mdsx.MissingError):
            mdsx.index_parquet(url)
    with pytest.raises(mdsx.UsageError):
        mdsx.index_parquet([])


def test_files_without_rows_are_read_over(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", 0, 0)
    pq.ParquetWriter(tmp_path / "1.parquet", pa.schema({"id": pa.int64()})).close()  # no row group
    assert mdsx.index_parquet(tmp_path).samples == 0
    assert ids(tmp_path, tmp_path) == []
    write(tmp_path / "2.parquet", 0, 5)
    found = mdsx.index_parquet(tmp_path)
    assert (found.files, found.shards, found.columns) == (3, 2, {"id": "int64"})
    assert ids(tmp_path, tmp_path) == [*range(5)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x": [1] * 10}, {}),
        ({}, {"x": [1] * 10}),
        ({"x": [1] * 10}, {"x": ["a"] * 10}),
        ({"x": pa.array([1] * 10, pa.timestamp("us"))}, {"x": pa.array([1] * 10, pa.timestamp("ms"))}),
        ({"x": pa.array([[1]] * 10)}, {"x": pa.array([[1.5]] * 10)}),
    ],
)
def test_different_columns_name_both_files_and_the_column(tmp_path: Path, first: Any, second: Any) -> None:
    write(tmp_path / "0.parquet", **first)
    write(tmp_path / "1.parquet", **second)
    with pytest.raises(mdsx.UsageError) as raised:
        mdsx.index_parquet(tmp_path)
    for name in ("0.parquet", "1.parquet", "column 'x'"):
        assert name in str(raised.value)


def test_a_declared_type_joins_files_that_differ(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", x=pa.array([1] * 10, pa.int32()))
    write(tmp_path / "1.parquet", x=pa.array([2**40] * 10))
    with pytest.raises(mdsx.UsageError, match="declare a type that fits both"):
        mdsx.index_parquet(tmp_path)
    mdsx.index_parquet(tmp_path, columns={"x": "int64"})
    assert [sample["x"] for sample in mdsx.Dataset(tmp_path, cache=tmp_path / ".cache")] == [1] * 10 + [2**40] * 10


def test_columns_may_be_in_another_order_and_layout(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "x": pa.array(["a"], pa.large_string())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": pa.array(["b"]).dictionary_encode(), "id": [2]}), tmp_path / "1.parquet")
    assert mdsx.index_parquet(tmp_path).columns == {"id": "int64", "x": "str"}
    assert list(mdsx.Dataset(tmp_path, cache=tmp_path / ".cache")) == [{"id": 1, "x": "a"}, {"id": 2, "x": "b"}]


def test_large_row_groups_are_reported_with_the_way_out(tmp_path: Path) -> None:
    text = "a long text that repeats " * 4000  # 100 kB, which a dictionary stores once
    pq.write_table(pa.table({"text": [text] * 4000}), tmp_path / "0.parquet", row_group_size=3000)
    with pytest.warns(UserWarning, match=r"too large to shuffle well.*0\.parquet.*smaller row groups"):
        found = mdsx.index_parquet(tmp_path)
    (large,) = found.large
    assert (large.file, large.group) == (str(tmp_path / "0.parquet"), 0)
    assert large.size == pytest.approx(3000 * len(text), rel=0.01)
    assert (tmp_path / "0.parquet").stat().st_size < 2**20


def test_columns_of_large_chunks_are_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only smaller chunks are sampled for the sizes of values."""
    monkeypatch.setattr(parquet, "_CHUNK", 0)
    write(tmp_path / "data/0.parquet", text=["a"] * 10)
    mdsx.index_parquet(tmp_path / "data")
    assert [sample["text"] for sample in mdsx.Dataset(tmp_path / "data", cache=tmp_path / "cache")] == ["a"] * 10


def test_a_declared_type_replaces_the_inferred_one(tmp_path: Path) -> None:
    jpeg = b"\xff\xd8\xff\xe0 image"
    write(tmp_path / "0.parquet", image=[jpeg] * 10, list=[[1], []] * 5, grid=[[[1, 2], [3, 4]]] * 10)
    declared = {"image": "jpeg", "list": "int64[*]", "grid": "int64[2,2]"}
    assert mdsx.index_parquet(tmp_path, columns=declared).columns == {"id": "int64", **declared}
    found = mdsx.Dataset(tmp_path, cache=tmp_path / ".cache")[1]
    assert (found["image"], found["list"].tolist(), found["grid"].tolist()) == (jpeg, [], [[1, 2], [3, 4]])
    with pytest.raises(mdsx.CorruptError, match=r"0\.parquet: row group 0.*'image'"):
        mdsx.index_parquet(tmp_path, columns={"image": "png"})
    with pytest.raises(mdsx.UsageError, match="no such column"):
        mdsx.index_parquet(tmp_path, columns={"none": "png"})


def test_folders_of_partitions_do_not_become_columns(tmp_path: Path) -> None:
    for year in (2023, 2024):
        write(tmp_path / f"year={year}" / "0.parquet", year, year + 2)
    with pytest.warns(UserWarning, match=r"year=2023.*do not become columns"):
        assert mdsx.index_parquet(tmp_path).columns == {"id": "int64"}
    assert ids(tmp_path, tmp_path) == [2023, 2024, 2024, 2025]


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.parquet")
    seen: list[mdsx.Progress] = []
    found = mdsx.index_parquet(tmp_path, watch=seen.append)
    assert [progress.samples for progress in seen] == [10, 20, 30]
    assert seen[-1].size == seen[-1].of_size == found.size
    assert seen[-1].shards == found.shards == 9


def test_pyarrow_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from mdsx.foreign.arrow import pa as lazy

    write(tmp_path / "0.parquet")
    vars(lazy).clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(mdsx.UsageError, match=r"pip install 'mdsx\[parquet\]'"):
        mdsx.index_parquet(tmp_path)


def test_the_names_of_classes_are_kept(tmp_path: Path) -> None:
    """`datasets` stores a ClassLabel as int64, and its names in the schema."""
    import datasets

    def write(name: str, names: list[str]) -> None:
        features = datasets.Features(
            {
                "kind": datasets.ClassLabel(names=names),
                "tags": datasets.List(datasets.ClassLabel(names=["a", "b"])),
                "n": datasets.Value("int64"),
            }
        )
        made = datasets.Dataset.from_dict({"kind": [0, 1], "tags": [[1], []], "n": [5, 6]}, features=features)
        (tmp_path / "pets").mkdir(exist_ok=True)
        made.to_parquet(tmp_path / "pets" / name)

    write("0.parquet", ["cat", "dog"])
    mdsx.index_parquet(tmp_path / "pets")
    pets = mdsx.Dataset(tmp_path / "pets")
    assert pets.metadata["class_names"] == {"kind": ["cat", "dog"], "tags": ["a", "b"]}
    fingerprint = pets.fingerprint
    mdsx.convert("parquet", tmp_path / "pets", tmp_path / "copy", rename={"label": "kind"}, drop="tags")
    assert mdsx.Dataset(tmp_path / "copy").metadata["class_names"] == {"label": ["cat", "dog"]}
    write("1.parquet", ["cat", "owl"])
    mdsx.index_parquet(tmp_path / "pets")
    assert mdsx.Dataset(tmp_path / "pets").metadata["class_names"] == {"tags": ["a", "b"]}
    assert fingerprint != mdsx.Dataset(tmp_path / "pets").fingerprint


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"info":{"features":[]}}',
        b'{"info":{"features":{"n":[]}}}',
        b'{"info":{"features":{"n":{"_type":"ClassLabel","names":3}}}}',
        b'{"info":{"features":{"n":{"_type":"ClassLabel","names":["\\ud800"]}}}}',
    ],
)
def test_strange_metadata_of_others_gives_no_names(tmp_path: Path, text: bytes) -> None:
    table = pa.table({"n": pa.array([1, 2])}).replace_schema_metadata({b"huggingface": text})
    pq.write_table(table, tmp_path / "a.parquet")
    mdsx.index_parquet(tmp_path)
    assert "class_names" not in mdsx.Dataset(tmp_path).metadata
