"""A batch that the user keeps never changes: no later batch, epoch or shard overwrites it."""

from __future__ import annotations

import gc
import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import parse_index
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.base.work.makers import living_workers
from tests.conftest import Often

COLUMNS = {
    "id": "int64",
    "half": "bfloat16[2]",
    "flag": "bool",
    "none": "uint16[0,3]",
    "text": "str",
    "raw": "bytes",
    "image": "jpeg?",
    "list": "float32[*]?",
}
N, BATCH = 301, 4


def sample(number: int) -> dict[str, Any]:
    """Later ones are much larger than the average, for which slots have room."""
    noise = random.Random(number).randbytes(number * 4)
    image = None if number % 3 == 0 else b"\xff\xd8\xff" + noise[: number % 50]
    listed = None if number % 5 == 0 else np.full(number % 4, number, np.float32)
    values = {"half": [number % 256, 0.5], "flag": number % 2 == 0, "none": np.zeros((0, 3), np.uint16)}
    return {"id": number, **values, "text": f"text {number}", "raw": noise, "image": image, "list": listed}


def write(url: str, **options: Any) -> str:
    with mdsx.Writer(url, COLUMNS, shard_size=32768, **options) as out:
        for number in range(N):
            out.write(sample(number))
    return url


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(str(tmp_path_factory.mktemp("kept") / "dataset"))


def visible(values: Any) -> Any:
    """Return a copy of what a user sees of a batch."""
    if isinstance(values, dict):
        return {name: visible(value) for name, value in values.items()}
    if isinstance(values, list):
        return [visible(value) for value in values]
    if isinstance(values, torch.Tensor):
        return values.dtype, tuple(values.shape), values.tolist()
    return (type(values), bytes(values)) if isinstance(values, bytes | memoryview) else values


def loader(url: str, workers: int, *, zero_copy: bool = False, shuffle: bool = True, **options: Any) -> Any:
    data = StreamingDataset(url, seed=3, zero_copy=zero_copy, shuffle=shuffle)
    return StreamingDataLoader(data, BATCH, num_workers=workers, drop_last=False, **options)


def epochs(made: Any, count: int) -> list[list[Any]]:
    return [list(made) for _ in range(count)]


@pytest.mark.slow_if("id in {'options3', 'options4'}")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"persistent_workers": True, "prefetch_factor": 5},
        {"persistent_workers": True, "multiprocessing_context": "forkserver", "shuffle": False},
        {"pin_memory": True},
        {"zero_copy": True, "persistent_workers": True},
    ],
)
@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_kept_batches_of_two_epochs_do_not_change(url: str, options: dict[str, Any]) -> None:
    plain = {name: value for name, value in options.items() if name in ("zero_copy", "shuffle")}
    kept = epochs(loader(url, 2, **options), 2)
    gc.collect()
    assert visible(kept) == visible(epochs(loader(url, 0, **plain), 2))


@pytest.mark.slow_if("not persistent")
@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_an_epoch_never_shares_a_slot(url: str, persistent: bool) -> None:
    """Keep some batches to the end, some for a while, some not. Workers are busy whenever an epoch is left."""
    chance = random.Random(7)
    left, plain = loader(url, 2, persistent_workers=persistent), loader(url, 0)
    kept: list[tuple[int, int, Any]] = []
    for epoch in range(20 if persistent else 4):
        for number, batch in enumerate(itertools.islice(left, chance.choice([1, 2, 7, 25]))):
            kept.append((epoch, number, batch))
            if len(kept) > 10 and chance.random() < 0.7:
                kept.pop(chance.randrange(len(kept)))
    right = {}
    for epoch in range(20 if persistent else 4):
        plain.set_epoch(epoch)
        right[epoch] = list(itertools.islice(plain, 25))
    assert len(kept) > 10
    for epoch, number, batch in kept:
        assert visible(batch) == visible(right[epoch][number])


def test_slots_of_abandoned_iterations_are_reused(url: str) -> None:
    """Tensors that nobody keeps come in shared memory, even after many abandoned epochs."""
    left = loader(url, 2, persistent_workers=True)
    for _ in range(20):
        for batch in itertools.islice(left, 4):
            assert "memfd:mdsx" in mapping(batch["id"].data_ptr())


def mapping(address: int) -> str:
    """Return the line of /proc/self/maps that an address lies in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, stop = (int(edge, 16) for edge in line.split()[0].split("-"))
        if start <= address < stop:
            return line
    return ""


def test_writing_to_a_batch_changes_no_other(url: str) -> None:
    """Tensors of several batches are adjacent in memory and writable."""
    kept = list(loader(url, 2))
    for batch in kept[::2]:
        batch["id"].fill_(-1)
        batch["half"].zero_()
    right = list(loader(url, 0))
    for batch, expected in zip(kept[1::2], right[1::2], strict=True):
        assert visible(batch) == visible(expected)


# --- zero_copy


@pytest.mark.parametrize("workers", [0, 2])
def test_zero_copy_gives_only_read_only_views_of_encoded_bytes(url: str, workers: int) -> None:
    copies = loader(url, 0)
    for found, expected in zip(loader(url, workers, zero_copy=True), copies, strict=True):
        for name in ("raw", "image"):
            assert found[name] == expected[name]
            for value in found[name]:
                assert value is None or (isinstance(value, memoryview) and value.readonly)
            del found[name], expected[name]
        assert visible(found) == visible(expected)


def test_a_transform_gets_the_views(url: str) -> None:
    data = StreamingDataset(url, shuffle=False, zero_copy=True, transform=lambda found: type(found["raw"]).__name__)
    for workers in (0, 1):
        assert next(iter(StreamingDataLoader(data, 2, num_workers=workers))) == ["memoryview"] * 2


@pytest.mark.slow_if("place == 's3'")
@pytest.mark.parametrize(("place", "workers"), [("in place", 0), ("in place", 2), ("zstd", 0), ("s3", 2)])
def test_views_outlive_their_dataset_and_its_cached_shards(
    place: str, workers: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"{request.getfixturevalue('s3_url')}/d" if place == "s3" else str(tmp_path / "d")
    write(url, compression="zstd" if place == "zstd" else None)
    other = str(tmp_path / "other")
    with mdsx.Writer(other, {"raw": "bytes"}, shard_size=32768, compression="zstd") as out:
        for _ in range(100):
            out.write({"raw": b"\xee" * 10_000})
    cache: dict[str, Any] = {"cache": mdsx.Cache(tmp_path / "cache", limit="1MB")}
    options: dict[str, Any] = {} if place == "in place" else cache
    data = StreamingDataset(url, seed=3, zero_copy=True, **options)
    batches = iter(StreamingDataLoader(data, BATCH, num_workers=workers, drop_last=False))
    kept = list(itertools.islice(batches, 30))
    del batches, data
    gc.collect()
    assert all(set(raw) == {0xEE} for raw in mdsx.Dataset(other, **cache).take(range(100))["raw"])
    expected = list(itertools.islice(loader(url, 0), 30)) if place == "in place" else None
    for number, batch in enumerate(kept):
        for id, raw, image in zip(batch["id"].tolist(), batch["raw"], batch["image"], strict=True):
            assert (raw, image) == (sample(id)["raw"], sample(id)["image"])
        assert expected is None or visible(batch["id"]) == visible(expected[number]["id"])


# --- a damaged shard in the middle of a run

ORDER: dict[str, Any] = {"seed": 3, "shuffle": mdsx.Shuffle(1, 100)}
WAYS: list[dict[str, Any]] = [
    {},
    {"num_workers": 1},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True},
]


def counts_of(url: str) -> list[int]:
    """Return how many samples each shard has."""
    found: list[int] = excerpt_of(mdsx.Dataset(url)).shards.index.counts.tolist()
    return found


def damage(url: str, shard: int, samples: list[int]) -> str:
    """Flip a bit of each of the `samples` of a shard of the dataset; returns the file's name."""
    index = parse_index((Path(url) / "index.json").read_bytes())
    path = Path(url) / index.name(shard)
    changed = bytearray(path.read_bytes())
    for sample in samples:
        changed[index.rows_offset + sample * index.schema.row_size + index.schema.row_size - 1] ^= 1
    path.write_bytes(changed)
    return path.name


@pytest.mark.slow_if("id in {'options1-shuffle1', 'options3-shuffle3', 'options5-False'}")
@pytest.mark.parametrize(
    ("options", "shuffle"),
    [(options, mdsx.Shuffle(1, 100)) for options in WAYS] + [(options, False) for options in WAYS[::2]],
)
def test_damage_raises_at_its_batch(tmp_path: Path, options: dict[str, Any], shuffle: bool | mdsx.Shuffle) -> None:
    """Calling `next()` again repeats it: it skips no batch, and the position stays. A whole shard is damaged."""
    url = write(str(tmp_path / "dataset"))
    data = StreamingDataset(url, **{**ORDER, "shuffle": shuffle})
    counts = counts_of(url)
    shard = len(counts) // 2
    lost = range(sum(counts[:shard]), sum(counts[: shard + 1]))
    whole = list(StreamingDataLoader(data, BATCH))
    before = next(number for number, batch in enumerate(whole) if set(batch["id"].tolist()) & set(lost))
    assert before > 8
    name = damage(url, shard, list(range(counts[shard])))

    reading = StreamingDataLoader(StreamingDataset(url, **{**ORDER, "shuffle": shuffle}), BATCH, **options)
    batches = iter(reading)
    for expected in whole[:before]:
        assert visible(next(batches)) == visible(expected)
    for _ in range(3):
        with pytest.raises(mdsx.CorruptError, match=rf"{name}.*sample \d+"):
            next(batches)
        assert reading.state_dict()["position"] == before * BATCH


@pytest.mark.parametrize("size", [None, BATCH])
def test_damage_raises_at_its_batch_under_pytorchs_loader(tmp_path: Path, size: int | None) -> None:
    url = write(str(tmp_path / "dataset"))
    data = StreamingDataset(url, batch_size=size, **ORDER)
    counts = counts_of(url)
    shard = len(counts) // 2
    lost = range(sum(counts[:shard]), sum(counts[: shard + 1]))
    whole = [torch.as_tensor(batch["id"]).reshape(-1).tolist() for batch in data]
    before = next(number for number, ids in enumerate(whole) if set(ids) & set(lost))
    damage(url, shard, list(range(counts[shard])))

    reading = StreamingDataset(url, batch_size=size, **ORDER)
    batches = iter(reading)
    assert [torch.as_tensor(next(batches)["id"]).reshape(-1).tolist() for _ in range(before)] == whole[:before]
    for _ in range(2):
        with pytest.raises(mdsx.CorruptError, match=r"sample \d+"):
            next(batches)
        assert reading.state_dict()["position"] == before * (size or 1)


@pytest.mark.slow_if("id in {'options2', 'options3'}")
@pytest.mark.parametrize("options", WAYS)
def test_damaged_sample_is_never_returned(tmp_path: Path, options: dict[str, Any], often: Often) -> None:
    """`next()` raises at the first batch of the shard if the whole shard is refused, else at the sample's own batch."""
    url = write(str(tmp_path / "dataset"))
    data = StreamingDataset(url, **ORDER)
    counts = counts_of(url)
    shard = len(counts) // 2
    first, count = sum(counts[:shard]), counts[shard]
    whole = list(StreamingDataLoader(data, BATCH))
    touched = [
        number for number, batch in enumerate(whole) if set(batch["id"].tolist()) & set(range(first, first + count))
    ]
    before = next(number for number in touched if first + 5 in whole[number]["id"].tolist())
    damage(url, shard, [5])

    reading = StreamingDataLoader(StreamingDataset(url, **ORDER), BATCH, **options)
    batches, found, errors = iter(reading), 0, 0
    while errors < often(4, long=40):
        try:
            batch = next(batches)
        except mdsx.CorruptError as error:
            assert "sample 5" in str(error)  # noqa: PT017  # as often as it comes
            errors += 1
        else:
            assert visible(batch) == visible(whole[found])
            found += 1
        assert reading.state_dict()["position"] == found * BATCH
    assert touched[0] <= found <= before


def test_workers_end_with_the_error(tmp_path: Path) -> None:
    """They do not wait for garbage collection: PyTorch's frames are in a cycle with the error."""
    url = write(str(tmp_path / "dataset"))
    damage(url, 0, list(range(counts_of(url)[0])))
    batches = iter(loader(url, 2, shuffle=False))
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            with pytest.raises(mdsx.CorruptError):
                next(batches)
            assert not living_workers()
    finally:
        gc.enable()


@pytest.mark.parametrize("options", WAYS)
def test_undamaged_shard_of_another_dataset_raises(tmp_path: Path, options: dict[str, Any]) -> None:
    for name, first in (("mine", 0), ("other", 1000)):
        with mdsx.Writer(tmp_path / name, {"id": "int64"}, shard_size="1KB") as out:
            out.write_batch({"id": np.arange(first, first + 200)})
    shutil.copy(tmp_path / "other" / "shard.00001.mdsx", tmp_path / "mine" / "shard.00001.mdsx")
    seen: list[Any] = []
    batches = StreamingDataLoader(StreamingDataset(tmp_path / "mine", seed=1), 8, **options)
    with pytest.raises(mdsx.CorruptError, match=r"shard\.00001\.mdsx"):
        seen.extend(batches)
    assert all(int(batch["id"].max()) < 200 for batch in seen)
