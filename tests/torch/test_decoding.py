"""decode= in a run: the same arrays in threads, processes and without PyTorch, after a resume, and on any ranks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.decoding.files import jpeg, photo, sound, tone

N, BATCH = 53, 5
BAD = frozenset({3, 17, 18, 52})
DECODE: dict[str, mdsx.Decoder] = {
    "image": mdsx.Image(size=24, resize="random_crop", layout="CHW"),
    "large": mdsx.Image(),
    "maybe": mdsx.Image(size=8),
}
COLUMNS = {"image": "jpeg", "large": "jpeg", "maybe": "jpeg?", "id": "int64"}
Batches = list[dict[str, Any]]


def write(folder: Path, bad: frozenset[int] = frozenset()) -> str:
    with mdsx.Writer(folder, COLUMNS, shard_size="60kB") as out:
        for number in range(N):
            data = jpeg(photo(40 + number % 3, 60, seed=number % 7))
            out.write(
                {
                    "image": data[:3] + bytes(len(data) - 3) if number in bad else data,
                    "large": data,
                    "maybe": None if number % 2 == 1 else data,
                    "id": number,
                }
            )
    return str(folder)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("decoding") / "data")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("decoding") / "damaged", BAD)


def streamed(url: str, *, transform: Any = None, rank: int = 0, ranks: int = 1, **options: Any) -> StreamingDataLoader:
    data = StreamingDataset(url, seed=7, decode=DECODE, transform=transform, rank=rank, world_size=ranks)
    return StreamingDataLoader(data, BATCH // ranks, **{"drop_last": False, **options})


def by_id(batches: Batches) -> dict[int, bytes]:
    return {
        int(number): np.asarray(image).tobytes()
        for batch in batches
        for number, image in zip(batch["id"], batch["image"], strict=True)
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other is None or np.array_equal(np.asarray(one), np.asarray(other))


@pytest.fixture(scope="module")
def expected(url: str) -> Batches:
    return list(streamed(url))


def test_batches_have_tensors_and_lists(expected: Batches) -> None:
    first = expected[0]
    assert first["image"].shape == (BATCH, 3, 24, 24)
    assert first["image"].dtype == torch.uint8
    assert [tuple(each.shape) for each in first["large"]] == [(40 + int(i) % 3, 60, 3) for i in first["id"]]
    assert [each is None for each in first["maybe"]] == [int(i) % 2 == 1 for i in first["id"]]
    assert {int(i) for batch in expected for i in batch["id"]} == set(range(N))


@pytest.mark.parametrize(
    "options",
    [{"num_threads": 3}, {"num_workers": 2}, {"num_workers": 2, "multiprocessing_context": "spawn"}],
    ids=["threads", "fork", "spawn"],
)
def test_threads_and_processes_give_the_same(url: str, expected: Batches, options: dict[str, Any]) -> None:
    found = list(streamed(url, **options))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        assert all(same(one[name], other[name]) for name in other)


def test_a_loader_without_pytorch_gives_the_same(url: str, expected: Batches) -> None:
    for options in ({}, {"num_threads": 2}, {"num_workers": 1}):
        found: Batches = list(mdsx.Loader(url, BATCH, seed=7, decode=DECODE, drop_last=False, **options))  # type: ignore[arg-type]
        assert isinstance(found[0]["image"], np.ndarray)
        assert isinstance(found[0]["large"][0], np.ndarray)
        for one, other in zip(found, expected, strict=True):
            assert all(same(one[name], other[name]) for name in other)


def test_random_crops_are_the_same_after_a_resume_and_on_other_ranks(url: str, expected: Batches) -> None:
    loader = streamed(url, num_threads=2)
    batches = iter(loader)
    before = [next(batches) for _ in range(4)]
    state = loader.state_dict()
    after: Batches = []
    for rank in range(2):
        resumed = streamed(url, rank=rank, ranks=2)
        resumed.load_state_dict(state)
        after += list(resumed)
    assert by_id(before + after) == by_id(expected)


def test_each_epoch_has_other_random_crops(url: str, expected: Batches) -> None:
    loader = streamed(url)
    assert by_id(list(loader)) == by_id(expected)
    second = by_id(list(loader))
    assert second.keys() == by_id(expected).keys()
    assert sum(second[number] == image for number, image in by_id(expected).items()) < 3


def test_an_unshuffled_run_has_the_crops_of_the_dataset(url: str) -> None:
    """As mdsx.Dataset says of its seeds."""
    dataset = mdsx.Dataset(url, decode=DECODE)
    (batch,) = mdsx.Loader(url, N, shuffle=False, decode=DECODE)
    np.testing.assert_array_equal(batch["image"], dataset.take(range(N))["image"])
    for single in (StreamingDataset(url, shuffle=False, decode=DECODE), mdsx.Loader(dataset, N, shuffle=False)):
        found = next(iter(single))
        first = found["image"] if found["image"].ndim == 3 else found["image"][0]
        np.testing.assert_array_equal(np.asarray(first), dataset[0]["image"])


def test_a_transform_gets_what_was_decoded(url: str, expected: Batches) -> None:
    threads = set()

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        threads.add(threading.current_thread().name)
        assert isinstance(sample["image"], np.ndarray)
        return {"id": sample["id"], "image": sample["image"] // 2, "missing": sample["maybe"] is None}

    found = list(streamed(url, transform=transform, num_threads=2))
    assert by_id(found) == by_id([{**batch, "image": batch["image"] // 2} for batch in expected])
    assert threads == {"mdsx-batches"}


def random_shift(sample: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    return {"id": sample["id"], "image": sample["image"], "draw": random.integers(1000)}


def test_a_random_transform_has_its_own_numbers(url: str, expected: Batches) -> None:
    """They are those that it has without decode=, and the crops those without it."""
    both = mdsx.Loader(url, BATCH, seed=7, decode=DECODE, drop_last=False, random_transform=random_shift)
    alone = mdsx.Loader(url, BATCH, seed=7, columns=["image", "id"], drop_last=False, random_transform=random_shift)
    found = list(both)
    assert by_id(found) == by_id(expected)
    assert [batch["draw"].tolist() for batch in found] == [batch["draw"].tolist() for batch in alone]


def test_the_seed_is_that_of_info(url: str) -> None:
    loader = mdsx.Loader(url, BATCH, decode={"image": DECODE["image"]}, columns=["image", "id"], info_column="info")
    stored = mdsx.Dataset(url)
    for batch in loader:
        for number, seed, image in zip(batch["id"], batch["info"]["seed"], batch["image"], strict=True):
            np.testing.assert_array_equal(DECODE["image"].decode(stored[int(number)]["image"], int(seed)), image)


@pytest.mark.parametrize("options", [{}, {"num_threads": 2}, {"num_workers": 1}, {"uneven": "repeat"}])
def test_skip_leaves_out_what_cannot_be_decoded(damaged: str, expected: Batches, options: dict[str, Any]) -> None:
    loader = streamed(damaged, on_error="skip", **options)
    found = list(loader)
    if "uneven" in options:
        found = [{"id": batch["id"][batch["valid"]], "image": batch["image"][batch["valid"]]} for batch in found]
    wanted = by_id(expected)
    assert by_id(found) == {number: wanted[number] for number in range(N) if number not in BAD}
    assert loader.stats().skipped == len(BAD)


def test_an_error_names_the_sample_and_the_column(damaged: str) -> None:
    with pytest.raises(mdsx.CorruptError, match=r"shard\.\d+\.mdsx, sample \d+, column 'image': .* frame header"):
        list(streamed(damaged, num_threads=2))
    with pytest.raises(mdsx.CorruptError, match="column 'image'"):
        list(streamed(damaged, num_workers=1))


def test_groups_have_what_was_decoded(tmp_path: Path) -> None:
    """Sound is packed like tokens, by its length; pictures are in the lists of their rows."""
    with mdsx.Writer(tmp_path / "data", {"speech": "bytes", "image": "jpeg", "length": "int64"}) as out:
        for number in range(20):
            samples = tone(8000, 0.001 * (number + 1))
            out.write(
                {
                    "speech": sound(samples, 8000),
                    "image": jpeg(photo(40, 60, seed=number)),
                    "length": len(samples),
                }
            )
    decode: dict[str, mdsx.Decoder] = {"speech": mdsx.Audio(), "image": mdsx.Image(size=8, resize="random_crop")}
    dataset = mdsx.Dataset(tmp_path / "data", decode=decode)
    batching = mdsx.Pack(400, length="length")
    seen = 0
    for batch in mdsx.Loader(tmp_path / "data", 2, decode=decode, batching=batching):
        assert batch["speech"].shape == (2, 400)
        assert batch["speech"].dtype == np.float32
        for row, images, segments in zip(batch["speech"], batch["image"], batch["segment_ids"], strict=True):
            for number, image in enumerate(images):
                part: NDArray[np.float32] = row[segments == number + 1]
                own = dataset[len(part) // 8 - 1]
                np.testing.assert_array_equal(part, own["speech"])
                assert image.shape == (8, 8, 3)
                seen += 1
    assert seen >= 14


def test_pytorchs_own_dataloader_reads_what_was_decoded(url: str, expected: Batches) -> None:
    data = StreamingDataset(url, seed=7, decode=DECODE, batch_size=BATCH, drop_last=False)
    found = list(torch.utils.data.DataLoader(data, batch_size=None, num_workers=2))
    assert by_id(found) == by_id(expected)


def test_a_run_with_decode_loads_the_state_of_one_without(url: str, expected: Batches) -> None:
    loader = mdsx.Loader(url, BATCH, seed=7, drop_last=False)
    batches = iter(loader)
    next(batches), next(batches)
    resumed = streamed(url)
    resumed.load_state_dict(loader.state_dict())
    assert by_id(list(resumed)) == by_id(expected[2:])


class Meeting:
    """A decoder whose first calls in two threads wait for each other."""

    def __init__(self) -> None:
        self._barrier, self._own = threading.Barrier(2), threading.local()

    def gives(self, stored: str) -> str:
        return "uint8[1]"

    def decode(self, data: bytes | memoryview, seed: int) -> NDArray[np.uint8]:
        if not hasattr(self._own, "met"):
            self._own.met = True
            self._barrier.wait(60)
        return np.zeros(1, np.uint8)


def test_each_thread_decodes_a_batch_of_its_own(url: str) -> None:
    """While one is in the middle of a batch, the other is in the middle of the next one."""
    loader = mdsx.Loader(url, BATCH, columns=["image"], decode={"image": Meeting()}, num_threads=2)
    assert len(list(loader)) == N // BATCH
