"""Changed data in PyTorch: with worker processes, in PyTorch's own DataLoader, and beside `loader.change`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

EXCLUDED = {"web": [*range(0, 90, 2)]}
Shares = dict[str, float]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root: Path = tmp_path_factory.mktemp("changed")
    for first, name in enumerate(("web", "code", "math")):
        with mdsx.Writer(root / name, {"id": "int64", "tokens": "int32[*]"}, shard_size=1500) as out:
            for number in range(90):
                out.write({"id": 100 * first + number, "tokens": np.full(number % 5 + 1, number, np.int32)})
    return {name: str(root / name) for name in ("web", "code", "math")}


def mixture(urls: dict[str, str], shares: Shares, **options: Any) -> mdsx.Mixture:
    return mdsx.Mixture({name: (urls[name], share) for name, share in shares.items()}, epoch_samples=120, **options)


def data(source: mdsx.Mixture, **options: Any) -> StreamingDataset:
    return StreamingDataset(source, seed=1, shuffle=mdsx.Shuffle(2), **options)


@pytest.fixture(scope="module")
def changed(urls: dict[str, str]) -> tuple[dict[str, Any], mdsx.Mixture, list[int]]:
    """A state in the middle of an epoch, the mixture from there on, and the samples that are left of the epoch."""
    loader = StreamingDataLoader(data(mixture(urls, {"web": 1, "code": 1})), 6)
    assert len([*itertools.islice(loader, 5)]) == 5
    after = mixture(urls, {"web": 2, "math": 1}, exclude=EXCLUDED)
    state = mdsx.change(loader.state_dict(), after)
    whole = StreamingDataLoader(data(after), 6)
    whole.load_state_dict(state)
    rest = [number for batch in whole for number in batch["id"].tolist()]
    assert not set(rest) & set(EXCLUDED["web"])
    assert {number // 100 for number in rest} == {0, 2}
    return state, after, rest


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_the_same(changed: tuple[dict[str, Any], mdsx.Mixture, list[int]], workers: int) -> None:
    state, after, rest = changed
    ranks = [StreamingDataLoader(data(after, rank=rank, world_size=2), 3, num_workers=workers) for rank in range(2)]
    for loader in ranks:
        loader.load_state_dict(state)
    steps = [[batch["id"].tolist() for batch in loader] for loader in ranks]
    assert [number for pair in zip(*steps, strict=True) for own in pair for number in own] == rest
    assert sum(loader.stats().samples for loader in ranks) == len(rest)


@pytest.mark.parametrize(("workers", "batch_size"), [(0, None), (0, 6), (2, 6)])
def test_pytorchs_own_loader_reads_the_same(
    changed: tuple[dict[str, Any], mdsx.Mixture, list[int]], workers: int, batch_size: int | None
) -> None:
    state, after, rest = changed
    dataset = data(after, batch_size=batch_size)
    dataset.load_state_dict(state)
    found = [np.atleast_1d(item["id"]).tolist() for item in DataLoader(dataset, batch_size=None, num_workers=workers)]
    assert sorted(number for own in found for number in own) == sorted(rest)


def test_a_transform_sees_no_sample_that_is_left_out(
    changed: tuple[dict[str, Any], mdsx.Mixture, list[int]],
) -> None:
    """Also where a rank has no sample of a step, and another one stands in for it."""
    state, after, rest = changed
    seen = list[int]()

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append(int(sample["id"]))
        return sample

    ranks = [StreamingDataLoader(data(after, rank=rank, world_size=6, transform=note), 1) for rank in range(6)]
    for loader in ranks:
        loader.load_state_dict(state)
    sizes = [[len(batch["id"]) for batch in loader] for loader in ranks]
    assert sum(map(sum, sizes)) == len(rest)
    assert 0 in itertools.chain(*sizes)
    assert not set(seen) & set(EXCLUDED["web"])


def test_a_run_changes_its_groups_and_then_its_data(urls: dict[str, str]) -> None:
    """Every tick of two epochs once: the samples are those of the phases of the state."""
    pack = mdsx.Pack(12, length="tokens", window=10)
    loader = StreamingDataLoader(data(mixture(urls, {"web": 1, "code": 1})), 3, batching=pack, drop_last=False)
    batches = iter(loader)
    next(batches)
    loader.change(mdsx.Phase(batching=mdsx.Pack(20, length="tokens", window=15)))
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    assert "plan" in state
    after = mixture(urls, {"web": 1, "code": 0, "math": 2})
    with pytest.warns(UserWarning, match="the removed component 'code' is still read"):
        state = mdsx.change(state, after)
    other = StreamingDataLoader(data(after), 2, batching=mdsx.Pack(20, length="tokens", window=15), drop_last=False)
    other.load_state_dict(state)
    before = other.consumed.samples
    counts = dict.fromkeys(("web", "code", "math"), 0)
    for batch in other:
        for number in itertools.chain(*batch["id"]):
            counts[("web", "code", "math")[int(number) // 100]] += 1
    assert counts == {name: other.consumed.samples[name] - before[name] for name in counts}
    assert sum(other.consumed.samples.values()) == 120
    start = state["phases"][-1][0]
    assert counts["math"] == round((120 - start) * 2 / 3) or abs(counts["math"] - (120 - start) * 2 / 3) <= 2
