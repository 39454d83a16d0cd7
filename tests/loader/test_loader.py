"""mdsx.Loader: the run of a StreamingDataLoader, as NumPy arrays, in threads, without PyTorch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.without_torch import run_without_torch

SAMPLES = 203


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset with a column of each kind; its index is in `id`."""
    path = str(tmp_path_factory.mktemp("loader") / "data")
    columns = {
        "id": "int64",
        "tokens": "uint16[*]",
        "half": "bfloat16",
        "flag": "bool",
        "text": "str",
        "maybe": "int32?",
    }
    with mdsx.Writer(path, columns, shard_size=2048) as out:
        for number in range(SAMPLES):
            tokens = np.arange(number % 7 + 1, dtype=np.uint16)
            maybe = None if number % 2 else number
            out.write(
                {
                    "id": number,
                    "tokens": tokens,
                    "half": number,
                    "flag": number % 3 == 0,
                    "text": f"text {number}",
                    "maybe": maybe,
                }
            )
    return path


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "id": sample["id"] * 2}


def both(url: str, transform: Any, **arguments: Any) -> tuple[mdsx.Loader, StreamingDataLoader]:
    data = StreamingDataset(url, seed=3, transform=transform, rank=1, world_size=2)
    return (
        mdsx.Loader(url, seed=3, transform=transform, rank=1, world_size=2, **arguments),
        StreamingDataLoader(data, **arguments),
    )


def plain(value: Any) -> Any:
    """Return a batch's value without arrays."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic | torch.Tensor) else value


WAYS: dict[str, dict[str, Any]] = {
    "columns": {"batch_size": 16, "drop_last": False},
    "repeat": {"batch_size": 101, "drop_last": False, "uneven": "repeat"},
    "pack": {"batch_size": 4, "batching": mdsx.Pack(32, length="tokens"), "drop_last": False},
    "flat": {"batch_size": 4, "batching": mdsx.Pack(32, length="tokens", layout="flat")},
    "max tokens": {"batching": mdsx.MaxTokens(64, length="tokens")},
}


@pytest.mark.parametrize("transform", [None, doubled])
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_a_streaming_data_loader(url: str, way: str, transform: Any) -> None:
    ours, theirs = both(url, transform, **WAYS[way])
    found, expected = list(ours), list(theirs)
    assert plain(found) == plain(expected)
    assert found[0].keys() == expected[0].keys()
    arrays = [isinstance(value, np.ndarray) for value in found[0].values()]
    assert arrays == [isinstance(value, torch.Tensor) for value in expected[0].values()]


@pytest.mark.parametrize("way", ["columns", "pack"])
def test_a_state_fits_the_other_loader(url: str, way: str) -> None:
    for first, second in (both(url, None, **WAYS[way]), both(url, None, **WAYS[way])[::-1]):
        begun = iter(first)
        taken = [next(begun) for _ in range(3)]
        assert first.state_dict() != second.state_dict()
        second.load_state_dict(first.state_dict())
        assert first.state_dict() == second.state_dict()
        assert plain(list(second)) == plain(list(begun))
        assert len(taken) == 3


@pytest.mark.parametrize("way", ["columns", "pack"])
@pytest.mark.parametrize("threads", [2, 5])
def test_any_number_of_threads_makes_the_same_batches(url: str, way: str, threads: int) -> None:
    one = mdsx.Loader(url, transform=doubled, **WAYS[way])
    several = mdsx.Loader(url, transform=doubled, num_threads=threads, **WAYS[way])
    assert plain(list(several)) == plain(list(one))
    assert several.stats().samples == one.stats().samples == SAMPLES
    begun = iter(several)
    next(begun)
    rest = mdsx.Loader(url, transform=doubled, num_threads=threads + 1, **WAYS[way])
    rest.load_state_dict(several.state_dict())
    assert plain(list(rest)) == plain(list(begun))


def test_threads_raise_an_error_at_its_batch_and_continue_there(url: str) -> None:
    fails = True

    def checked(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] == wrong and fails:
            raise ValueError("the sample is wrong")
        return sample

    expected = [batch["id"].tolist() for batch in mdsx.Loader(url, 16)]
    wrong = expected[5][3]
    begun = iter(mdsx.Loader(url, 16, transform=checked, num_threads=3))
    seen = [next(begun)["id"].tolist() for _ in range(5)]
    with pytest.raises(ValueError, match="wrong"):
        next(begun)
    fails = False
    seen += [batch["id"].tolist() for batch in begun]
    assert seen == expected


def test_ranks_come_from_the_launcher(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    seen = Counter[int]()
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        seen.update(number for batch in mdsx.Loader(url, 8, drop_last=False) for number in batch["id"].tolist())
    assert seen == Counter(range(SAMPLES))


def test_a_transform_may_return_anything(url: str) -> None:
    def changed(sample: dict[str, Any]) -> Any:
        return sample["id"], {"some": np.zeros(2), "ragged": sample["tokens"], "none": None, "flag": sample["flag"]}

    numbers, rest = next(iter(mdsx.Loader(url, 16, transform=changed)))
    assert numbers.dtype == np.int64
    assert rest["some"].shape == (16, 2)
    assert rest["flag"].dtype == np.bool_
    assert isinstance(rest["ragged"], list)
    assert rest["none"] == [None] * 16


def test_mistakes_name_the_way_out(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"transform must be a function.*found 3"):
        mdsx.Loader(url, 8, transform=3)  # type: ignore[arg-type]
    with pytest.raises(mdsx.UsageError, match="give the number of packed rows per rank"):
        mdsx.Loader(url, batching=mdsx.Pack(32, length="tokens"))
    with pytest.raises(mdsx.UsageError, match="remove batch_size"):
        mdsx.Loader(url, 8, batching=mdsx.MaxTokens(32, length="tokens"))


@pytest.mark.parametrize("threads", [0, True, 1.5])
def test_num_threads_is_checked(url: str, threads: Any) -> None:
    with pytest.raises(mdsx.UsageError, match="num_threads"):
        mdsx.Loader(url, 8, num_threads=threads)


PROGRAM = """
import sys
import mdsx

loader = mdsx.Loader(sys.argv[1], 16, transform=lambda sample: sample, num_threads=2, drop_last=False)
assert sorted(number for batch in loader for number in batch["id"].tolist()) == [*range(203)]
assert loader.state_dict()["epoch"] == 1
assert "torch" not in sys.modules
"""


def test_it_needs_no_torch(url: str) -> None:
    run_without_torch(PROGRAM, url)


def test_datasets_and_loaders_show_what_they_read(url: str) -> None:
    data, mixture = StreamingDataset(url, seed=3), mdsx.Mixture([(url, 1)])
    shown = f"{mdsx.Dataset(url)!r}, seed=3, shuffle=True"
    assert repr(data) == f"StreamingDataset({shown}, epoch=0)"
    loader = StreamingDataLoader(data, 4)
    assert repr(loader) == f"StreamingDataLoader({shown}, batch_size=4, epoch=0)"
    loader.set_epoch(2)
    assert repr(loader).endswith("epoch=2)")
    assert repr(mdsx.Loader(mixture, 2, seed=3)) == f"Loader({mixture!r}, seed=3, shuffle=True, batch_size=2, epoch=0)"
    packed = mdsx.Loader(url, 2, columns=["tokens"], batching=mdsx.Pack(16, length="tokens"))
    assert "batching=Pack(capacity=16, length='tokens'" in repr(packed)
