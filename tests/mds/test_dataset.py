"""An MDS dataset is opened, streamed, mixed and resumed like one of ours."""

from __future__ import annotations

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
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.conftest import Often
from tests.mds.notation import as_noted, noted
from tests.mds.plain import read_dataset, write_dataset
from tests.mds.test_golden import EXPECTED, GOLDEN, expected

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


@pytest.fixture
def mds(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "mds", COLUMNS, shards())
    return tmp_path / "mds"


@pytest.fixture
def remote(mds: Path, s3_url: str) -> str:
    upload(mds, s3_url)
    return s3_url


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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_makes_tensors_and_lists_of_them(mds: Path, workers: int) -> None:
    loader = StreamingDataLoader(StreamingDataset(mds), 8, num_workers=workers)
    for batch in loader:
        for place, number in enumerate(batch["id"].tolist()):
            want = sample(number)
            assert batch["dyn"][place].tolist() == want["dyn"].tolist()
            assert (batch["n"][place], batch["text"][place]) == (want["n"], want["text"])
            assert batch["vector"][place].tolist() == want["vector"].tolist()


def test_a_transform_and_a_collate_get_samples(mds: Path) -> None:
    dataset = StreamingDataset(mds, transform=lambda sample: {"id": sample["id"], "sum": int(sample["dyn"].sum())})
    for batch in StreamingDataLoader(dataset, 8):
        assert batch["sum"].tolist() == [int(sample(number)["dyn"].sum()) for number in batch["id"].tolist()]
    for batch in StreamingDataLoader(StreamingDataset(mds), 4, collate_fn=list):
        assert all(each["n"] == sample(int(each["id"]))["n"] for each in batch)


@pytest.mark.filterwarnings("ignore:the cache may hold")
@pytest.mark.parametrize("hashes", [(), ("xxh3_64",)])
def test_a_run_resumes_from_s3_through_a_small_cache(hashes: tuple[str, ...], tmp_path: Path, s3_url: str) -> None:
    write_dataset(tmp_path / "mds", COLUMNS, shards(), hashes)
    upload(tmp_path / "mds", s3_url)
    cache = mdsx.Cache(tmp_path / "cache", limit="9KB")

    def loader() -> Any:
        return StreamingDataLoader(StreamingDataset(s3_url, cache=cache, seed=3), 8)

    whole, first = ids(loader()), loader()
    batches = iter(first)
    taken = [int(number) for _ in range(5) for number in next(batches)["id"]]
    second = loader()
    second.load_state_dict(first.state_dict())
    assert taken + ids(second) == whole
    assert sorted(whole) == list(range(COUNT))


def test_a_mixture_joins_mds_and_ours(remote: str, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "ours", OURS, shard_size=1024) as out:
        for number in range(COUNT, 2 * COUNT):
            out.write({name: sample(number)[name] for name in OURS})
    components = [mdsx.Component(remote, columns=[*OURS]), mdsx.Component(str(tmp_path / "ours"))]
    mixture = mdsx.Mixture(components, cache=tmp_path / "cache", component_column="source")
    found: dict[int, tuple[str, int]] = {}
    for batch in StreamingDataLoader(StreamingDataset(mixture), 16):
        found |= dict(zip(batch["id"].tolist(), zip(batch["text"], batch["source"].tolist(), strict=True), strict=True))
        assert batch["vector"][:, 0].tolist() == batch["id"].tolist()
    assert found == {number: (sample(number)["text"], number // COUNT) for number in range(2 * COUNT)}


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


def test_single_samples_are_read_by_range(remote: str, tmp_path: Path) -> None:
    dataset = mdsx.Dataset(remote, cache=tmp_path / "cache")
    assert as_noted(dataset[37])["text"] == sample(37)["text"]
    assert not dataset.shards.is_open(2)
    for number in range(COUNT):  # a shard that is read much is fetched whole
        assert dataset[number]["n"] == sample(number)["n"]
    assert dataset.shards.is_open(2)


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


@pytest.mark.parametrize("url", ["compressed", "remote"])
def test_a_byte_flipped_in_the_cache_is_fetched_again(url: str, tmp_path: Path, request: Any) -> None:
    source = GOLDEN / "compression-zstd" if url == "compressed" else request.getfixturevalue("remote")
    want = [as_noted(each) for each in mdsx.Dataset(source, cache=tmp_path / "cache")]
    files = [path for path in tmp_path.joinpath("cache").rglob("*.mdsx") if path.is_file()]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        data[-20] ^= 1  # of the last sample
        path.chmod(0o600)
        path.write_bytes(data)
    dataset = mdsx.Dataset(source, cache=tmp_path / "cache")
    assert [as_noted(dataset[number]) for number in range(len(dataset))] == want


@pytest.mark.parametrize("name", ["empty-shard", "merged", "hashes-zstd"])
def test_special_datasets_stream(name: str, tmp_path: Path) -> None:
    dataset = StreamingDataset(GOLDEN / name, cache=tmp_path / "cache")
    (batch,) = StreamingDataLoader(dataset, len(expected(name)), collate_fn=list)
    found = [as_noted(each) for each in batch]
    assert sorted(map(str, found)) == sorted(map(str, expected(name)))


def test_a_merged_dataset_is_read_from_s3(tmp_path: Path, s3_url: str) -> None:
    upload(GOLDEN / "merged", s3_url)
    dataset = mdsx.Dataset(s3_url, cache=tmp_path / "cache")
    assert [as_noted(dataset[number]) for number in range(len(dataset))] == EXPECTED["mixed"][:15]


def test_info_and_cat_show_a_dataset(run: Run) -> None:
    _, out, _ = run("info", GOLDEN / "hash-sha1")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["format", "MDS"] in lines
    assert ["checks", "sha1 of whole shards"] in lines
    assert ["dyn", "mds.ndarray"] in lines
    ran = run("cat", GOLDEN / "encoding-str_decimal", "--json")
    assert ran.status == 0
    assert '"y1"' in ran.out
