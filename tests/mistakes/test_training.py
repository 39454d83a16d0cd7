"""Mistakes in training: an error that says what to do, before a sample is lost or read twice."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

AT_RANDOM: Any = mdsx.Dataset  # these two: type checkers refuse some of these mistakes
STREAMING: Any = StreamingDataset


def loader(url: Any, batch_size: Any = 8, **options: Any) -> StreamingDataLoader:
    of_dataset = {"seed", "shuffle", "transform", "rank", "world_size", "columns", "dtypes"}
    given = {name: value for name, value in options.items() if name in of_dataset}
    rest = {name: value for name, value in options.items() if name not in of_dataset}
    return StreamingDataLoader(StreamingDataset(url, **given), batch_size, **rest)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda url: mdsx.Dataset(url, columns=["token"]),
            r"'token': there is no such column \(expected tokens, label",
        ),
        (lambda url: mdsx.Dataset(url, columns="tokens"), "columns must be a list of names"),
        (lambda url: loader(url, batching=mdsx.Pack(64, length="toks")), "'toks': there is no such column"),
        (lambda url: mdsx.Dataset(url).split(0.9, 0.1, by="user"), "'user': there is no such column"),
        (lambda url: mdsx.Dataset(url).split(0.8, 0.3), "add up to more than 1"),
        (lambda url: loader(url, None), "batch_size is missing; give the number of samples per rank"),
        (lambda url: loader(url, 0), "batch_size must be an integer of at least 1"),
        (lambda url: list(loader(url, 1000)), "no batch of 1000; give a smaller batch_size, or drop_last=False"),
        (
            lambda url: StreamingDataLoader(url, 8),
            r"not a StreamingDataset \(found str\); give StreamingDataset\(url\)",
        ),
        (lambda url: StreamingDataset(url)[3], r"read in its order, not by number; mdsx\.Dataset\(url\)\[i\]"),
        (lambda url: mdsx.Dataset(url)[300], r"sample 300 is out of range \(expected below 300\)"),
        (lambda url: AT_RANDOM(url)["tokens"], r"ds\[0\]\['tokens'\] is a value of this column"),
        (lambda url: STREAMING(remote=url, local="x"), "takes no remote; give the URL first"),
        (lambda url: STREAMING(url, cache_limit="2GB"), r"give cache=mdsx\.Cache\(directory, limit=\.\.\.\)"),
        (lambda url: STREAMING(url, transform=lambda sample, rng: sample), "give it as random_transform="),
        (lambda url: StreamingDataset(url, rank=1), "rank and world_size are given together"),
        (lambda url: StreamingDataset(url, rank=4, world_size=4), "rank must be below world_size"),
        (lambda url: loader(url, on_error="ignore"), "on_error must be 'raise' or 'skip'"),
        (lambda url: mdsx.Mixture({"a": (url, 0.5), "b": url}), "give each component a proportion"),
        (lambda url: mdsx.Dataset(url).select([3, 1]), r"its numbers must ascend.*give np\.unique\(numbers\)"),
        (lambda url: mdsx.Dataset(url).filter(lambda sample: None), "does it lack a return"),
    ],
)
def test_arguments_that_do_not_fit(url: str, make: Callable[[str], Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        make(url)


def test_a_cache_that_cannot_hold_a_shard_or_is_a_users_folder(places: Path, tmp_path: Path) -> None:
    packed = places / "packed"
    with pytest.raises(mdsx.UsageError, match=r"below the largest shard .*give cache=mdsx\.Cache\(limit=\d+\) or more"):
        StreamingDataset(packed, cache=mdsx.Cache(tmp_path / "cache", limit="1kB"))
    with pytest.raises(mdsx.UsageError, match=r"neither empty nor a cache.*give an empty directory"):
        StreamingDataset(packed, cache=places / "data")
    with pytest.raises(mdsx.UsageError, match="write it like '64MiB'"):
        mdsx.Cache(tmp_path, limit="2 gigs")
    with pytest.raises(
        mdsx.UsageError, match=r"directory looks like a size \(found '2GB'\); give mdsx\.Cache\(limit='2GB'\)"
    ):
        StreamingDataset(packed, cache="2GB")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 2}, r"seed: the state belongs to another order.*construct the dataset with seed=1 to resume"),
        ({"shuffle": False}, "construct the dataset with shuffle=True"),
        ({"shuffle": mdsx.Shuffle(lanes=8)}, r"construct the dataset with shuffle=mdsx\.Shuffle\(lanes=1\b"),
        ({"dataset": "packed"}, None),  # compressed or not: the same samples
        ({"dataset": "half"}, "fingerprint: .*the checkpoint belongs to another dataset"),
    ],
)
def test_another_run_after_a_resume(places: Path, changes: dict[str, Any], message: str | None) -> None:
    first = loader(places / "data", seed=1)
    next(iter(first))
    options = {"seed": 1, **changes}
    name = options.pop("dataset", "data")
    data: Any = mdsx.Dataset(places / "data").select(0, 150) if name == "half" else places / name
    other = loader(data, **options)
    if message is None:
        other.load_state_dict(first.state_dict())
        return
    with pytest.raises(mdsx.StateError, match=message):
        other.load_state_dict(first.state_dict())


def test_the_whole_checkpoint_in_place_of_the_state(url: str) -> None:
    with pytest.raises(mdsx.StateError, match=r"'model': .*give what state_dict\(\) returned"):
        loader(url).load_state_dict({"model": {}, "data": {}})


def test_the_state_of_the_dataset_in_place_of_the_loaders(url: str) -> None:
    data = StreamingDataset(url)
    kept = StreamingDataLoader(data, 8)
    with pytest.raises(mdsx.UsageError, match=r"call loader\.state_dict\(\)"):
        data.state_dict()
    assert kept.state_dict()["position"] == 0


def test_a_state_that_is_loaded_inside_the_loop(url: str) -> None:
    loop = loader(url)
    state = loop.state_dict()
    batches = iter(loop)
    next(batches)
    loop.load_state_dict(state)
    with pytest.raises(mdsx.UsageError, match=r"this iteration has ended: .* a state loaded"):
        next(batches)


def test_pytorchs_dataloader(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="batches of batches; give the DataLoader batch_size=None"):
        next(iter(DataLoader(StreamingDataset(url, batch_size=8), batch_size=8)))
    with pytest.raises(mdsx.UsageError, match="2 workers cannot share single samples; use StreamingDataLoader"):
        next(iter(DataLoader(StreamingDataset(url), batch_size=8, num_workers=2)))
    with pytest.raises(ValueError, match="shuffle=True"):  # PyTorch's own; docs/operations.md says what to do
        DataLoader(StreamingDataset(url), batch_size=8, shuffle=True)
    with pytest.raises(mdsx.UsageError, match="takes no shuffle; give it to the StreamingDataset"):
        StreamingDataLoader(StreamingDataset(url), 8, shuffle=True)  # type: ignore[call-arg]


def test_subclasses_whose_methods_nobody_would_call(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"overrides __getitem__, which is never called: .*transform="):

        class Numbered(StreamingDataset):
            def __getitem__(self, index: object) -> Any:
                return index

    class Endless(StreamingDataset):
        def __iter__(self) -> Any:
            return iter(int, 1)

    with pytest.raises(
        mdsx.UsageError, match=r"overrides __iter__, which StreamingDataLoader does not call.*transform="
    ):
        StreamingDataLoader(Endless(url), 8)

    class Unmade(StreamingDataset):
        def __init__(self, url: str) -> None:
            self.url = url

    with pytest.raises(mdsx.UsageError, match=r"Unmade\.__init__ has not called .*; call super\(\)\.__init__\(url\)"):
        StreamingDataLoader(Unmade(url), 8)

    class Other(mdsx.Dataset):
        def __getitem__(self, place: Any) -> Any:
            return place

    with pytest.raises(mdsx.UsageError, match=r"overrides __getitem__, which a loader never calls: .*transform="):
        StreamingDataset(Other(url))


def test_a_transform_that_returns_nothing_or_raises(url: str) -> None:
    for each in (loader(url, transform=lambda sample: None), mdsx.Loader(url, 8, transform=lambda sample: None)):
        with pytest.raises(mdsx.UsageError, match=r"transform returned None; does it lack a return\?"):
            next(iter(each))
    with pytest.raises(KeyError) as raised:
        next(iter(loader(url, transform=lambda sample: sample["image"])))
    assert re.search(r"mdsx: in transform, at position 0, shard \d+, sample \d", raised.value.__notes__[0])


def test_tokens_for_an_embedding(url: str) -> None:
    embedding = torch.nn.Embedding(32, 4)
    with pytest.raises(RuntimeError, match="UInt16"):  # PyTorch's own; docs/training.md says what to do
        embedding(next(iter(loader(url, columns=["tokens"], batching=mdsx.Pad())))["tokens"])
    tokens = next(iter(loader(url, columns=["tokens"], batching=mdsx.Pad(), dtypes={"tokens": "int64"})))["tokens"]
    assert embedding(tokens).shape == (*tokens.shape, 4)


def test_packed_samples_that_are_too_long_and_a_length_nobody_knows(url: str) -> None:
    with pytest.raises(mdsx.SampleError, match=r'longer than a group .*oversize="truncate".*or a larger capacity'):
        next(iter(loader(url, batching=mdsx.Pack(8, length="tokens"))))
    with pytest.raises(TypeError, match=r"call loader\.plan\(\), which counts them, or give the loader epoch_steps="):
        len(loader(url, batching=mdsx.Pack(64, length="tokens")))


def test_workers_started_by_spawn_without_a_main_guard(url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from mdsx.torch import StreamingDataLoader, StreamingDataset\n"
        f"loader = StreamingDataLoader(StreamingDataset({url!r}), 8, num_workers=1, multiprocessing_context='spawn')\n"
        "next(iter(loader))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "below `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]
    with pytest.raises(mdsx.UsageError, match=r"cannot be pickled for 'spawn'.*multiprocessing_context='fork'"):
        next(iter(loader(url, transform=lambda sample: sample, num_workers=1, multiprocessing_context="spawn")))


def test_a_name_that_is_in_mdsx_torch() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'StreamingDataset': it is in mdsx\.torch"):
        mdsx.StreamingDataset  # type: ignore[attr-defined]  # noqa: B018
