"""`mdsx.zip`: the columns of several datasets, joined by the numbers of their samples."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.order import DatasetCourse, Order, Tick
from mdsx.shards import View, lengths_of
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.foreign.mds import plain

N = 200
IMAGES = {"id": "int64", "image": "bytes"}
SCORES = {"score": "float32", "name": "str?"}


def image(number: int) -> dict[str, Any]:
    return {"id": number, "image": b"image %05d" % number + bytes(100)}


def score(number: int) -> dict[str, Any]:
    return {"score": number / N, "name": f"name {number:05}" if number % 3 else None}


def write(folder: Path, columns: dict[str, str], row: Any, *, size: int, count: int = N, **options: Any) -> Path:
    with mdsx.Writer(folder, columns, shard_size=size, **options) as out:
        for number in range(count):
            out.write(row(number))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Fifteen shards of images and six of scores, whose edges differ."""
    base = tmp_path_factory.mktemp("zip")
    return write(base / "images", IMAGES, image, size=2000), write(base / "scores", SCORES, score, size=1500)


@pytest.fixture(scope="module")
def zipped(folders: tuple[Path, Path]) -> mdsx.Dataset:
    return mdsx.zip(*folders)


def expected(number: int) -> dict[str, Any]:
    return {**image(number), **score(number), "score": np.float32(number / N)}


def read(loader: StreamingDataLoader) -> list[int]:
    """Return the numbers of a pass's samples, whose values must be right."""
    found = []
    for batch in loader:
        found += batch["id"].tolist()
        for place, number in enumerate(batch["id"].tolist()):
            sample = {name: column[place] for name, column in batch.items() if name in (*IMAGES, *SCORES)}
            assert sample == {name: value for name, value in expected(number).items() if name in sample}
    return found


def stream(data: Any, batch: int = 16, workers: int = 0, **options: Any) -> StreamingDataLoader:
    dataset = StreamingDataset(data, seed=3, **options)
    return StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=False)


def test_a_sample_has_the_columns_of_all(zipped: mdsx.Dataset, folders: tuple[Path, Path]) -> None:
    assert len(zipped) == N
    assert dict(zipped.columns) == {**IMAGES, **SCORES}
    assert [zipped[number] for number in (0, 57, -1)] == [expected(number) for number in (0, 57, N - 1)]
    assert list(zipped) == [expected(number) for number in range(N)]
    assert zipped[[150, 3, 3]] == [expected(number) for number in (150, 3, 3)]
    assert zipped.take([9, 2], as_arrow=True).to_pylist() == [expected(9), expected(2)]
    assert pickle.loads(pickle.dumps(zipped))[7] == expected(7)
    other = mdsx.zip(folders[1], mdsx.Dataset(folders[0]))
    assert list(other[5]) == [*SCORES, *IMAGES]
    assert other[5] == expected(5)


def test_columns_are_chosen_and_renamed(zipped: mdsx.Dataset) -> None:
    some = zipped.select_columns({"title": "name", "number": "id"})
    assert some[4] == {"title": "name 00004", "number": 4}
    assert zipped.select_columns(["score"])[7] == {"score": np.float32(7 / N)}
    assert zipped.select_columns(["name", "image"]).select_columns(["image"])[7] == {"image": image(7)["image"]}
    assert some.fingerprint == zipped.fingerprint


def test_the_fingerprint_depends_on_all(zipped: mdsx.Dataset, folders: tuple[Path, Path]) -> None:
    lines = "\n".join(["zip", *(mdsx.Dataset(folder).fingerprint for folder in folders)])
    assert zipped.fingerprint == xxhash.xxh3_128_hexdigest(lines.encode())
    chosen = zipped.select(2, 5)
    assert chosen.fingerprint == xxhash.xxh3_128_hexdigest(f"{zipped.fingerprint}\n2:5".encode())


def test_selections_of_the_same_samples_are_joined(zipped: mdsx.Dataset, folders: tuple[Path, Path]) -> None:
    images, scores = map(mdsx.Dataset, folders)

    chosen: Any
    for name, chosen in (
        ("select", (20, 70)), ("select", (range(0, N, 3),)), ("select", ([3, 4, 9],)), ("select_share", (0, 0.5)),
    ):  # fmt: skip
        image, score, both_columns = (getattr(data, name)(*chosen) for data in (images, scores, zipped))
        both = mdsx.zip(image, score)
        assert both.fingerprint == both_columns.fingerprint
        assert both[1] == both_columns[1] == expected(int(both[1]["id"]))
    thrice = mdsx.zip(zipped, scores.select_columns({"again": "score"}))
    assert thrice[8] == {**expected(8), "again": np.float32(8 / N)}


def test_a_longer_dataset_is_joined_by_the_same_numbers(folders: tuple[Path, Path], tmp_path: Path) -> None:
    longer = mdsx.Dataset(write(tmp_path / "longer", SCORES, score, size=900, count=N + 50))
    with pytest.raises(mdsx.UsageError, match="different numbers of samples"):
        mdsx.zip(folders[0], longer)
    both = mdsx.zip(folders[0], longer.select(0, N))
    assert both[N - 1] == expected(N - 1)
    assert sorted(read(stream(both))) == list(range(N))


def test_what_does_not_fit_is_not_joined(folders: tuple[Path, Path]) -> None:
    images, scores = map(mdsx.Dataset, folders)
    with pytest.raises(mdsx.UsageError, match="selections of different samples"):
        mdsx.zip(images.select(0, 10), scores.select(1, 11))
    with pytest.raises(mdsx.UsageError, match=r"column with this name.*select_columns\(\{'other_id': 'id'\}\)"):
        mdsx.zip(images, scores, images)
    with pytest.raises(mdsx.UsageError, match=r"different numbers.*join the whole datasets first"):
        mdsx.zip(images.select(0, 10), scores)
    for wrong in ((), (3,), (mdsx.Mixture([images]),)):
        with pytest.raises(mdsx.UsageError):
            mdsx.zip(*wrong)


def test_choosing_reads_only_the_dataset_with_the_column(folders: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], tmp_path / "images")
    zipped = mdsx.zip(tmp_path / "images", folders[1])
    for shard in (tmp_path / "images").glob("shard.*"):
        shard.unlink()
    high = zipped.filter(lambda score: score >= 0.5, ["score"], batched=True)
    assert high.fingerprint == zipped.select(N // 2, N).fingerprint
    named, unnamed = zipped.split(0.5, 0.5, by="name")
    assert len(named) + len(unnamed) == N
    (batch,) = StreamingDataLoader(StreamingDataset(high, columns=["score"], shuffle=False), batch_size=N // 2)
    assert batch["score"].tolist() == [np.float32(number / N) for number in range(N // 2, N)]
    with pytest.raises(mdsx.MissingError):
        zipped[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_zipped_datasets_stream_in_the_order_of_the_first(
    zipped: mdsx.Dataset, folders: tuple[Path, Path], workers: int
) -> None:
    found = read(stream(zipped, workers=workers))
    assert found == [number for batch in stream(folders[0]) for number in batch["id"].tolist()]
    assert found != sorted(found)


def test_zipped_datasets_resume(zipped: mdsx.Dataset) -> None:
    part = zipped.filter(lambda name: name is not None, ["name"])
    first, seen = stream(part), list[int]()
    for batch in first:
        seen += batch["id"].tolist()
        if len(seen) > 60:
            break
    second = stream(part, batch=5)
    second.load_state_dict(first.state_dict())
    assert sorted(seen + read(second)) == [number for number in range(N) if number % 3]


def test_zipped_datasets_are_components_of_a_mixture(zipped: mdsx.Dataset, tmp_path: Path) -> None:
    both = {**IMAGES, **SCORES}
    write(tmp_path / "plain", both, lambda number: {**image(number), **score(number)}, size=3000)
    parts = [zipped.select(0, 50), mdsx.Dataset(tmp_path / "plain").select(50, 120), zipped.select(120, N)]
    once = mdsx.Mixture(parts, component_column="part")
    loader, found = stream(once), list[tuple[int, int]]()
    for batch in loader:
        found += zip(batch["id"].tolist(), batch["part"].tolist(), strict=True)
    assert sorted(found) == [(number, int(number >= 50) + int(number >= 120)) for number in range(N)]
    weighted = mdsx.Mixture([(part, 1) for part in parts])
    assert set(read(stream(weighted))) <= set(range(N))


@pytest.mark.parametrize("limit", ["12KB", "1MB"])
def test_the_shards_of_all_go_through_the_cache(folders: tuple[Path, Path], tmp_path: Path, limit: str) -> None:
    cache = mdsx.Cache(tmp_path / "cache", limit=limit)
    parts = []
    for folder, (columns, row) in zip(folders, ((IMAGES, image), (SCORES, score)), strict=True):
        url = write(tmp_path / folder.name, columns, row, size=2000, compression="zstd")
        parts.append(mdsx.Dataset(url, cache=cache))
    loader = stream(mdsx.zip(*parts))
    for _ in range(2):
        assert sorted(read(loader)) == list(range(N))
    if limit == "1MB":
        cached = {path.parent.name for path in (tmp_path / "cache").rglob("*.mdsx")}
        assert cached == {part.fingerprint for part in parts}
        assert loader.stats().cache_misses == sum(len(excerpt_of(part).shards.index.counts) for part in parts)


def test_other_formats_are_joined(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "parquet").mkdir()
    names = [score(number)["name"] for number in range(N)]
    table = pyarrow.table({"score": pyarrow.array(np.arange(N) / N, pyarrow.float32()), "name": names})
    parquet.write_table(table, tmp_path / "parquet" / "a.parquet", row_group_size=70)
    mdsx.index_parquet(tmp_path / "parquet")
    zipped = mdsx.zip(folders[0], mdsx.Dataset(tmp_path / "parquet", cache=mdsx.Cache(tmp_path / "cache")))
    assert zipped[7]["name"] == "name 00007"
    assert sorted(read(stream(zipped))) == list(range(N))
    assert len(zipped.filter(lambda score: score < 0.5, ["score"], batched=True)) == N // 2


def test_packed_rows_have_the_columns_of_all(tmp_path: Path) -> None:
    rows = [{"id": number, "text": f"text {number}"} for number in range(90)]
    plain.write_dataset(tmp_path / "mds", {"id": "int", "text": "str"}, [rows[:40], rows[40:]])
    tokens = {"tokens": "uint16[*]"}
    write(tmp_path / "tokens", tokens, lambda n: {"tokens": np.full(n % 9 + 1, n)}, size=600, count=90)
    data = mdsx.zip(tmp_path / "mds", tmp_path / "tokens").filter(lambda number: number % 2 == 0, ["id"])
    packed = mdsx.Pack(16, length="tokens")
    loader = StreamingDataLoader(StreamingDataset(data), batch_size=2, batching=packed, drop_last=False)
    found = list[int]()
    for batch in loader:
        for row, ids in enumerate(batch["id"]):
            values, segments = batch["tokens"][row], batch["segment_ids"][row]
            assert [values[segments == place + 1].unique().tolist() for place in range(len(ids))] == [[n] for n in ids]
            found += map(int, ids)
    assert sorted(found) == list(range(0, 90, 2))


@settings(max_examples=15)
@given(st.data())
def test_any_shards_and_any_part_are_joined_by_number(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    with TemporaryDirectory() as folder:
        names = ["a", "b", "c"][: data.draw(st.integers(2, 3))]
        for number, name in enumerate(names):
            columns = {f"{name}0": "int32", f"{name}1": "str"}
            with mdsx.Writer(f"{folder}/{name}", columns, shard_size=data.draw(st.integers(400, 1500))) as out:
                for sample in range(count):
                    out.write({f"{name}0": sample * 10 + number, f"{name}1": name * sample})
        everything: list[dict[str, Any]] = [{} for _ in range(count)]
        for number, name in enumerate(names):
            for sample, values in enumerate(everything):
                values.update({f"{name}0": sample * 10 + number, f"{name}1": name * sample})
        zipped = mdsx.zip(*(f"{folder}/{name}" for name in names))
        assert list(zipped) == everything
        columns_of = data.draw(st.lists(st.sampled_from(list(everything[0])), min_size=1, unique=True))
        chosen = data.draw(st.sets(st.integers(0, count - 1), min_size=1).map(sorted))
        part = zipped.select_columns(columns_of).select(chosen)
        expected = [{name: everything[number][name] for name in columns_of} for number in chosen]
        assert list(part) == expected
        loader = StreamingDataLoader(StreamingDataset(part, shuffle=False), batch_size=len(chosen))
        (batch,) = loader
        assert {name: list(column) for name, column in batch.items()} == {
            name: [sample[name] for sample in expected] for name in columns_of
        }


def damage(folder: Path, value: bytes) -> None:
    (path,) = (path for path in folder.glob("shard.*") if value in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(value, value[:-1] + b"?"))


def test_damage_in_either_is_skipped(folders: tuple[Path, Path], tmp_path: Path) -> None:
    for folder, value in zip(folders, (b"image 00050", b"name 00100"), strict=True):
        shutil.copytree(folder, tmp_path / folder.name)
        damage(tmp_path / folder.name, value)
    zipped = mdsx.zip(tmp_path / "images", tmp_path / "scores")
    with pytest.raises(mdsx.CorruptError):
        read(stream(zipped))
    dataset = StreamingDataset(zipped, seed=3)
    loader = StreamingDataLoader(dataset, batch_size=16, drop_last=False, on_error="skip")
    assert sorted(read(loader)) == [number for number in range(N) if number not in (50, 100)]
    assert loader.stats().skipped == 2
    with pytest.raises(mdsx.CorruptError, match="scores"):
        zipped[100]


def test_lengths_may_come_from_any_of_them(zipped: mdsx.Dataset) -> None:
    view = View([excerpt_of(zipped)])
    shards, samples = view.at(3)[0].index.counts, np.array([0, 5])
    first = int(shards[:3].sum())
    for column, row in (("name", score), ("image", image)):
        found = lengths_of(view, column).of(np.array([3, 3]), samples)
        assert found.tolist() == [len(row(first + number)[column] or "") for number in samples.tolist()]


def edges(counts: Sequence[int]) -> list[tuple[int, int]]:
    ends = np.cumsum(counts).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def test_a_side_shard_is_needed_with_those_it_overlaps(zipped: mdsx.Dataset) -> None:
    view = View([excerpt_of(zipped)])
    main, side = (shards.index.counts.tolist() for shards in excerpt_of(zipped).datasets)
    course = DatasetCourse(Order(view.counts, seed=3, lanes=2, shuffle_block=16))
    needs = view.side_needs.next_needs(course.next_needs)
    overlaps = [
        [number for number, (first, last) in enumerate(edges(main)) if first < stop and start < last]
        for start, stop in edges(side)
    ]
    for position in map(Tick, (0, 37, 150, 500)):
        own = course.next_needs(position)
        found = needs(position, None)
        assert found[: len(main)].tolist() == own.tolist()
        assert found[len(main) :].tolist() == [min(own[number] for number in each) for each in overlaps]
        some = np.array([len(main) + 2, 1, len(main)])
        assert needs(position, some).tolist() == found[some].tolist()
    mine = np.zeros(len(main), np.bool_)
    mine[overlaps[1]] = True
    spread = view.side_needs.spread(mine)[len(main) :]
    assert spread.tolist() == [bool(set(each) & set(overlaps[1])) for each in overlaps]
