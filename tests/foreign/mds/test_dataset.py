"""An MDS dataset is read and ordered like one of ours; what every format promises is in tests/shards/formats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.storage import open_storage
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.conftest import Often
from tests.foreign.mds.notation import as_noted, noted
from tests.foreign.mds.plain import read_dataset, write_dataset
from tests.foreign.mds.test_golden import GOLDEN, expected

COLUMNS = {"dyn": "ndarray:int32", "id": "int", "n": "str_int", "text": "str", "vector": "ndarray:float32:3"}
OURS = {"id": "int64", "text": "str", "vector": "float32[3]"}
COUNT, PER_SHARD = 96, 16


def sample(number: int) -> dict[str, Any]:
    return {
        "dyn": np.arange(number % 3 + 1, dtype=np.int32),
        "id": number,
        "n": number * 10**20,
        "text": f"text {number} " * (number % 9),
        "vector": np.array([number, 0.5, -1], np.float32),
    }


def shards(start: int = 0) -> list[list[dict[str, Any]]]:
    return [[sample(start + at + k) for k in range(PER_SHARD)] for at in range(0, COUNT, PER_SHARD)]


def upload(folder: Path, url: str) -> None:
    storage = open_storage(url)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        storage.put(str(path.relative_to(folder)), path.read_bytes())


def ids(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch["id"]]


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=9),
    "str": st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    "int": st.integers(-(2**63), 2**63 - 1),
    "uint8": st.integers(0, 255),
    "float32": st.floats(width=32, allow_nan=False),
    "str_int": st.integers(),
    "json": st.dictionaries(st.text("ab"), st.integers(), max_size=3),
    "ndarray": st.lists(st.integers(-9, 9), max_size=5).map(lambda items: np.array([items], np.int8)),
    "ndarray:uint16:2,2": st.integers(0, 65535).map(lambda item: np.full((2, 2), item, np.uint16)),
}


def test_any_dataset_is_read_like_the_plain_reader(often: Often, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=often(25, long=1000), deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        encodings = data.draw(st.lists(st.sampled_from([*_VALUES]), min_size=1, max_size=5))
        columns = {f"c{number}": encoding for number, encoding in enumerate(encodings)}
        samples = st.fixed_dictionaries({name: _VALUES[encoding] for name, encoding in columns.items()})
        found = data.draw(st.lists(st.lists(samples, max_size=4), min_size=1, max_size=3))
        folder = tmp_path_factory.mktemp("any")
        write_dataset(folder, columns, found, hashes=data.draw(st.sampled_from([[], ["sha256", "xxh32"]])))
        dataset, want = mdsx.Dataset(folder), [as_noted(sample) for sample in read_dataset(folder)]
        assert len(want) == sum(map(len, found))
        assert [as_noted(dataset[number]) for number in range(len(dataset))] == want
        assert [as_noted(sample) for sample in dataset] == want
        shutil.rmtree(folder)

    run()


def test_the_order_is_that_of_one_of_ours(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(COUNT)]
    write_dataset(tmp_path / "mds", COLUMNS, [samples])
    with mdsx.Writer(tmp_path / "ours", OURS) as out:
        for each in samples:
            out.write({name: each[name] for name in OURS})
    found = [ids(StreamingDataLoader(StreamingDataset(tmp_path / name, seed=7), 8)) for name in ("mds", "ours")]
    assert found[0] == found[1] != sorted(found[0])


def test_a_mixture_of_two_mds_datasets_keeps_their_types(tmp_path: Path) -> None:
    for part in range(2):
        write_dataset(tmp_path / f"{part}", COLUMNS, shards(part * COUNT))
    mixture = mdsx.Mixture([str(tmp_path / "0"), str(tmp_path / "1")], component_column="source")
    seen = {
        number: big
        for batch in StreamingDataLoader(StreamingDataset(mixture), 16)
        for number, big in zip(batch["id"].tolist(), batch["n"], strict=True)
    }
    assert seen == {number: sample(number)["n"] for number in range(2 * COUNT)}


def test_arrays_of_more_dimensions_than_ours(tmp_path: Path) -> None:
    encoding = "ndarray:int16:" + ",".join("2" * 9)
    values = [np.arange(k, k + 512, dtype=np.int16).reshape((2,) * 9) for k in range(3)]
    samples = [{"a": "text" * k, "x": value, "y": k} for k, value in enumerate(values)]
    write_dataset(tmp_path, {"a": "str", "x": encoding, "y": "int"}, [samples])
    dataset = mdsx.Dataset(tmp_path)
    for number, value in enumerate(values):
        assert noted(dataset[number]["x"]) == noted(dataset[[number]][0]["x"]) == noted(value)
        assert dataset[number]["y"] == number


def test_nan_in_json_is_read_alone_and_beside_ours(tmp_path: Path) -> None:
    write_dataset(tmp_path / "mds", {"x": "json"}, [[{"x": {"loss": float("nan"), "best": float("-inf")}}]])
    with mdsx.Writer(tmp_path / "ours", {"x": "json"}) as out:
        out.write({"x": {"loss": 1.5, "best": 0}})
    assert mdsx.Dataset(tmp_path / "mds")[0]["x"]["best"] == float("-inf")
    for names in (("mds", "ours"), ("ours", "mds")):
        mixture = mdsx.Mixture([str(tmp_path / name) for name in names])
        (batch,) = StreamingDataLoader(StreamingDataset(mixture), 2)
        assert sorted(value["best"] for value in batch["x"]) == [float("-inf"), 0]


def test_json_stays_text_in_arrow(tmp_path: Path) -> None:
    """So its type depends neither on the values nor on their neighbours."""
    values: list[Any] = [{"a": 1}, [1, 2.5], None, "text"]
    write_dataset(tmp_path, {"n": "str_int", "x": "json"}, [[{"n": 7, "x": value}] for value in values])
    dataset = mdsx.Dataset(tmp_path)
    texts = [json.dumps(value, separators=(",", ":")) for value in values]
    assert dataset.take(range(4), as_arrow=True)["x"].to_pylist() == texts
    assert dataset.to_batches().read_all().to_pydict() == {"n": [7] * 4, "x": texts}
    assert dataset.to_polars().collect()["x"].to_list() == texts
    assert mdsx.Dataset(tmp_path).select(0, 0).to_batches().read_all()["x"].to_pylist() == []


def test_a_shard_with_hashes_is_never_read_by_range(tmp_path: Path, s3_url: str) -> None:
    write_dataset(tmp_path / "mds", COLUMNS, shards(), ["md5"])
    damaged = bytearray((tmp_path / "mds" / "shard.00001.mds").read_bytes())
    damaged[-1] ^= 1  # a value of the last sample, whose form stays right
    (tmp_path / "mds" / "shard.00001.mds").write_bytes(damaged)
    upload(tmp_path / "mds", s3_url)
    for url in (s3_url, tmp_path / "mds"):
        dataset = mdsx.Dataset(url, cache=tmp_path / "cache")
        assert dataset[0]["id"] == 0
        for number in range(PER_SHARD, 2 * PER_SHARD):
            with pytest.raises(mdsx.CorruptError, match=r"shard.00001.mds: md5: "):
                dataset[number]


@pytest.mark.parametrize("name", ["empty-shard", "merged", "hashes-zstd"])
def test_special_datasets_stream(name: str, tmp_path: Path) -> None:
    dataset = StreamingDataset(GOLDEN / name, cache=tmp_path / "cache")
    (batch,) = StreamingDataLoader(dataset, len(expected(name)), collate_fn=list)
    found = [as_noted(each) for each in batch]
    assert sorted(map(str, found)) == sorted(map(str, expected(name)))
