"""Packed rows and length-bounded batches: each sample once, in the same groups, on any ranks and after any resume."""

from __future__ import annotations

import itertools
import json
import warnings
from collections import Counter
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import checkpoint

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

N = 400
LENGTHS = [(number * 37) % 61 for number in range(N)]
PACK = mdsx.Pack(64, length="tokens", window=16)
TOKENS = mdsx.MaxTokens(128, length="tokens", window=16)
SPLIT = mdsx.Pack(40, length="tokens", window=16, oversize="split")
CONCAT = mdsx.Pack(40, length="tokens", window=16, kind="concat")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """400 samples of 0 to 60 tokens, each with the sample's number."""
    path = str(tmp_path_factory.mktemp("groups") / "data")
    columns = {"id": "int64", "tokens": "int32[*]", "labels": "int32[*]", "text": "str"}
    with mdsx.Writer(path, columns, shard_size=4096) as out:
        for number, length in enumerate(LENGTHS):
            tokens = np.full(length, number, np.int32)
            out.write({"id": number, "tokens": tokens, "labels": tokens + 1, "text": f"text of {number}"})
    return path


def loader(
    data: Any, batch_size: int | None = 3, batching: Any = PACK, rank: int = 0, world_size: int = 1, **options: Any
) -> StreamingDataLoader:
    of_data = {name: options.pop(name, None) for name in ("transform", "epoch_samples", "info_column")}
    lanes = mdsx.Shuffle(lanes=8)  # so that the dataset has several windows
    dataset = StreamingDataset(data, seed=3, shuffle=lanes, rank=rank, world_size=world_size, **of_data)
    rows = None if isinstance(batching, mdsx.MaxTokens) else batch_size
    return StreamingDataLoader(dataset, rows, batching=batching, **options)


def ranks(url: Any, world_size: int, batch_size: int, **options: Any) -> list[StreamingDataLoader]:
    return [loader(url, batch_size, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def pieces(batches: Iterable[dict[str, Any]]) -> Counter[tuple[int, int]]:
    """Count (sample, values) of each piece in the batches, from their values."""
    found = Counter[tuple[int, int]]()
    for batch in batches:
        if "lengths" in batch:
            found.update(zip(batch["id"].tolist(), batch["lengths"].tolist(), strict=True))
            continue
        for row, segments, numbers in zip(batch["tokens"], batch["segment_ids"], batch["id"], strict=True):
            for segment, number in enumerate(numbers, 1):
                values = row[segments == segment]
                assert (values == number).all()
                found[number, len(values)] += 1
    return found


def take(loaders: list[StreamingDataLoader], steps: int | None = None) -> list[dict[str, Any]]:
    """Return the batches of all ranks in `steps` steps (None: in the rest of the epoch)."""
    found = list[dict[str, Any]]()
    for step in itertools.islice(zip(*map(iter, loaders), strict=True), steps):
        assert len({batch["global_tokens"] for batch in step}) == 1
        assert sum(int((batch["segment_ids"] > 0).sum()) for batch in step) == step[0]["global_tokens"]
        found += step
    return found


dcp: Any = checkpoint
EVERY = Counter(enumerate(LENGTHS))


def test_packed_rows_have_the_values_of_their_samples(url: str) -> None:
    batches = list(loader(url, drop_last=False))
    assert pieces(batches) == EVERY
    first = batches[0]
    assert first["tokens"].shape == first["segment_ids"].shape == first["position_ids"].shape == (3, 64)
    assert first["tokens"].dtype == torch.int32
    filled = first["segment_ids"] > 0
    assert torch.equal(first["labels"][filled], first["tokens"][filled] + 1)
    assert first["text"] == [[f"text of {number}" for number in row] for row in first["id"]]
    assert sum(batch["global_samples"] for batch in batches) == N
    assert sum(batch["global_tokens"] for batch in batches) == sum(LENGTHS)


WORLDS = [(1, 6), (2, 2), (3, 4)]


@pytest.mark.slow_if("id not in {'4-pack', '1-split', '4-concat'}")
@pytest.mark.parametrize("kind", [PACK, SPLIT, CONCAT], ids=["pack", "split", "concat"])
@pytest.mark.parametrize("steps", [1, 4])
def test_any_world_size_resumes_any_other_in_mid_window(url: str, kind: mdsx.Pack, steps: int) -> None:
    expected = pieces(loader(url, batching=kind, drop_last=False))
    for before, after in itertools.permutations(WORLDS, 2):
        stopped = ranks(url, *before, batching=kind)
        read = take(stopped, steps)
        states = [json.loads(json.dumps(each.state_dict())) for each in stopped]
        assert all(state == states[0] for state in states)
        resumed = ranks(url, *after, batching=kind, drop_last=False)
        for each in resumed:
            each.load_state_dict(states[-1])
        assert pieces(read) + pieces(take(resumed)) == expected
        assert {each.epoch for each in resumed} == {1}


def test_bounded_batches_resume_on_other_ranks(url: str) -> None:
    read, state = list[dict[str, Any]](), None
    for world in (1, 3, 2):
        loaders = [loader(url, None, TOKENS, rank, world, drop_last=False) for rank in range(world)]
        for each in loaders:
            if state is not None:
                each.load_state_dict(state)
        for step in itertools.islice(zip(*map(iter, loaders), strict=True), 7 if world != 2 else None):
            read += step
        state = loaders[0].state_dict()
    assert pieces(read) == EVERY
    for batch in read:
        assert batch["tokens"].shape == (len(batch["id"]), int(batch["lengths"].max()))
        assert batch["tokens"].numel() <= 128


@pytest.mark.parametrize("batching", [PACK, TOKENS, CONCAT], ids=["pack", "max tokens", "concat"])
def test_worker_processes_hand_out_the_same_batches(url: str, batching: Any) -> None:
    alone, others = (loader(url, batching=batching, num_workers=workers) for workers in (0, 2))
    for left, right in zip(alone, others, strict=True):
        assert left.keys() == right.keys()
        for name, values in left.items():
            same = torch.equal(values, right[name]) if isinstance(values, torch.Tensor) else values == right[name]
            assert same, name
    assert alone.state_dict() == others.state_dict()


def test_the_number_of_batches_is_known_after_a_plan(url: str) -> None:
    found = loader(url)
    with pytest.raises(TypeError, match=r"loader\.plan\(\)"):
        len(found)
    plan = found.plan()
    assert len(found) == plan.steps == found.remaining
    assert (plan.samples, plan.values) == (N, sum(LENGTHS))
    next(iter(found))
    found.resume()
    assert found.remaining == plan.steps - 1
    assert len(list(found)) == plan.steps - 1  # list() asks for the length of what it reads, too
    with pytest.raises(TypeError):
        len(found)  # of the next epoch


def test_every_rank_has_the_same_number_of_batches(url: str) -> None:
    for drop_last in (True, False):
        loaders = ranks(url, 3, 5, drop_last=drop_last)
        steps = [len(list(each)) for each in loaders]
        assert steps == [loaders[0].plan(0).steps] * 3


def test_epochs_of_a_fixed_number_of_batches_leave_nothing_out(url: str) -> None:
    found = loader(url, epoch_steps=10)
    whole = Counter[tuple[int, int]]()
    each = loader(url, 1, drop_last=False)
    for _ in range(3):
        whole += pieces(each)
    read = []
    for epoch in range(4):
        assert (found.epoch, len(found)) == (epoch, 10)
        batches = list(found)
        assert len(batches) == 10
        read += batches
        again = loader(url, epoch_steps=10)
        again.load_state_dict(found.state_dict())
        found = again
    assert pieces(read) <= whole
    assert pieces(read[:24]) != pieces(read[-24:])


def test_leaving_an_epoch_of_a_fixed_number_of_batches_leaves_nothing_out(url: str) -> None:
    found, steps = loader(url, epoch_steps=10), list(loader(url, epoch_steps=20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = list(itertools.islice(found, 4))
        read += list(found)
    assert pieces(read) == pieces(steps[:14])
    assert found.epoch == 2


def test_an_epoch_that_was_left_continues_after_resume(url: str) -> None:
    found = loader(url, drop_last=False)
    read = list(itertools.islice(found, 5))
    found.resume()
    assert pieces(read + list(found)) == EVERY
    list(itertools.islice(found, 2))
    batches = iter(found)
    with pytest.warns(UserWarning, match="epoch 1 was left before its last batch"):
        next(batches)
    assert found.epoch == 2


def test_a_mixture_is_reweighted_at_the_end_of_the_window(url: str) -> None:
    parts = {"a": (mdsx.Dataset(url).select(0, 200), 1), "b": (mdsx.Dataset(url).select(200, 400), 0)}
    found = loader(mdsx.Mixture(parts), drop_last=False)
    batches = iter(found)
    read = [next(batches)]
    found.reweight({"a": 0, "b": 1})
    state = json.loads(json.dumps(found.state_dict()))
    resumed = loader(mdsx.Mixture(parts), drop_last=False)
    resumed.load_state_dict(state)
    read += resumed
    in_order = [number for batch in read for row in batch["id"] for number in row]
    first_of_b = next(place for place, number in enumerate(in_order) if number >= 200)
    assert all(number < 200 for number in in_order[:first_of_b])
    assert first_of_b == 8 * 16, "the window's samples are those of the old weights"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iteration_continues_in_the_groups_of_the_new_weights(url: str, workers: int) -> None:
    parts = {"a": (mdsx.Dataset(url).select(0, 200), 1), "b": (mdsx.Dataset(url).select(200, 400), 0)}
    found, resumed = (loader(mdsx.Mixture(parts), drop_last=False, num_workers=w) for w in (workers, 0))
    batches = iter(found)
    next(batches)
    found.reweight({"a": 0, "b": 1})
    resumed.load_state_dict(found.state_dict())
    assert [batch["id"] for batch in batches] == [batch["id"] for batch in resumed]


def test_a_rank_without_samples_gets_a_batch_with_the_keys_of_the_others(url: str) -> None:
    def shifted(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] % 3:
            raise ValueError(sample["id"])
        return {"id": sample["id"], "tokens": sample["tokens"], "next": sample["tokens"].astype(np.int64)}

    data = mdsx.Dataset(url).select(0, 2)
    for batching in (PACK, TOKENS):
        options: dict[str, Any] = {"batching": batching, "transform": shifted, "on_error": "skip", "drop_last": False}
        first, *others = [next(iter(each)) for each in ranks(data, 3, 1, **options)]
        for other in others:
            assert other.keys() == first.keys()
            assert other["next"].dtype == torch.int64
            assert other["next"].count_nonzero() == 0


def test_the_end_of_an_epoch_is_the_start_of_the_next_one(url: str) -> None:
    found = loader(url)
    state = {**found.state_dict(), "position": N}
    found.load_state_dict(state)
    assert found.epoch == 1
    assert found.state_dict() == {**state, "epoch": 1, "position": 0}
    with pytest.raises(mdsx.StateError, match="start of a window"):
        found.load_state_dict({**state, "groups": {**state["groups"], "taken": 1}})


def test_a_transform_changes_samples_before_they_are_packed(url: str) -> None:
    def shifted(sample: dict[str, Any]) -> dict[str, Any]:
        return {"id": sample["id"], "tokens": sample["tokens"], "next": np.roll(sample["tokens"], -1).astype(np.int64)}

    for workers in (0, 1):
        batch = next(iter(loader(url, transform=shifted, num_workers=workers)))
        assert batch["next"].dtype == torch.int64
        assert torch.equal(batch["next"], batch["tokens"].long())


def test_samples_whose_transform_fails_are_left_out_of_their_rows(url: str) -> None:
    def fails(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] % 50 == 7:
            raise ValueError(sample["id"])
        return sample

    found = loader(url, transform=fails, on_error="skip", drop_last=False)
    batches = list(found)
    assert pieces(batches) == Counter({each: 1 for each in EVERY if each[0] % 50 != 7})
    assert found.stats().skipped == 8
    whole = loader(url, transform=fails, drop_last=False)
    with pytest.raises(ValueError, match=r"\d+"):
        list(whole)


def test_a_collate_fn_joins_the_samples_of_a_bounded_batch(url: str) -> None:
    found = loader(url, None, TOKENS, collate_fn=lambda samples: [sample["id"] for sample in samples], drop_last=False)
    assert sorted(number for batch in found for number in batch) == list(range(N))
    with pytest.raises(mdsx.UsageError, match="collate_fn"):
        loader(url, collate_fn=list)


def test_the_state_names_what_does_not_fit(url: str) -> None:
    found = loader(url)
    next(iter(found))
    state = found.state_dict()
    for batching, field in (
        (mdsx.Pack(65, length="tokens", window=16), "capacity"),
        (mdsx.Pack(64, length="labels", window=16), "lengths"),
        (SPLIT, "capacity"),
        (TOKENS, "kind"),
        (CONCAT, "kind"),
    ):
        with pytest.raises(mdsx.StateError, match=f"groups.{field}"):
            loader(url, batching=batching).load_state_dict(state)
    with pytest.raises(mdsx.StateError, match="middle of a window"):
        loader(url, batching=None).load_state_dict(state)
    for broken in (
        {**state["groups"], "taken": -1},
        {**state["groups"], "x": 1},
        None,
        {**state["groups"], "window": 7},
    ):
        with pytest.raises(mdsx.StateError):
            loader(url).load_state_dict({**state, "groups": broken})


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_distributed_checkpoint_keeps_the_state_if_it_is_one_value(url: str, tmp_path: Path) -> None:
    """Of a dict, `dcp.load` takes the keys that the loader's own state has now, and leaves out others in silence."""
    packed, plain = loader(url), loader(url, batching=None)
    for found, name in ((packed, "packed"), (plain, "plain")):
        next(iter(found))
        state = found.state_dict()
        dcp.save({"dict": state, "loader": json.dumps(state)}, checkpoint_id=tmp_path / name)

    def loaded(name: str, into: StreamingDataLoader) -> dict[str, Any]:
        state = {"loader": json.dumps(into.state_dict())}
        dcp.load(state, checkpoint_id=tmp_path / name)
        found: dict[str, Any] = json.loads(state["loader"])
        return found

    fresh, without = loader(url), loader(url, batching=None)
    with pytest.raises(mdsx.StateError, match="middle of a window"):
        without.load_state_dict(loaded("packed", without))
    with pytest.raises(mdsx.StateError, match="start of a window"):
        fresh.load_state_dict(loaded("plain", fresh))
    fresh.load_state_dict(loaded("packed", fresh))
    assert fresh.state_dict() == packed.state_dict()

    state = {"dict": without.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path / "packed")
    assert "groups" not in state["dict"]  # why docs/trainers.md says to save one value


def test_a_state_that_does_not_fit_changes_nothing(url: str) -> None:
    found, batching = loader(url), mdsx.Pack(64, length="tokens")
    next(iter(found))
    state = found.state_dict()
    other = loader(mdsx.Dataset(url).select(0, 300), batching=batching)
    before = other.state_dict()
    with pytest.raises(mdsx.StateError, match="fingerprint"):
        other.load_state_dict(state)
    with pytest.raises(mdsx.StateError, match="capacity"):
        found.load_state_dict({**state, "groups": {**state["groups"], "capacity": 65}})
    assert (found.state_dict(), other.state_dict()) == (state, before)


def test_at_the_end_of_a_window_the_groups_may_change(url: str) -> None:
    found = loader(url, 1)
    for _ in found:
        state = found.state_dict()
        if state["groups"]["taken"] == 0 and state["position"]:
            break
    assert state["position"] == 8 * 16
    read = 8 * 16
    for batching in (mdsx.Pack(80, length="labels", window=8), TOKENS, None):
        rest = loader(url, 4, batching=batching, drop_last=False)
        rest.load_state_dict(state)
        if batching is None:
            assert sum(len(each["id"]) for each in rest) == N - read
        else:
            assert sum(pieces(rest).values()) == N - read
    with pytest.raises(mdsx.StateError, match="start of a window"):
        loader(url, batching=mdsx.Pack(64, length="tokens", window=24)).load_state_dict(state)


@pytest.mark.parametrize("window", [16, 24, 50])
def test_a_window_of_any_size_begins_where_the_dataset_does(url: str, window: int) -> None:
    """An epoch of 1000 samples goes 2.5 times through the dataset. Each time, the windows begin anew."""
    plain = loader(url, 100, batching=None, epoch_samples=1000)
    batches = iter(plain)
    for _ in range(2 * N // 100):
        next(batches)
    rest = loader(url, 4, batching=mdsx.Pack(64, length="tokens", window=window), drop_last=False, epoch_samples=1000)
    rest.load_state_dict(plain.state_dict())
    expected = Counter((number, LENGTHS[number]) for batch in batches for number in batch["id"].tolist())
    assert pieces(rest) == expected


def test_a_default_window_is_that_of_the_state(tmp_path: Path) -> None:
    """The default depends on the sum of lengths, which the index may have or not, with one fingerprint."""
    for lengths in ([], ["tokens"]):
        with mdsx.Writer(
            tmp_path / str(len(lengths)), {"id": "int64", "tokens": "int32[*]", "text": "str"}, lengths=lengths
        ) as out:
            for number in range(50):
                out.write({"id": number, "tokens": np.full(1, number, np.int32), "text": "of its own length"})
    batching = mdsx.Pack(100, length="tokens")
    before = loader(str(tmp_path / "0"), 1, batching, drop_last=False)
    read, state = [next(iter(before))], before.state_dict()
    after = loader(str(tmp_path / "1"), 1, batching, drop_last=False)
    assert (state["groups"]["positions"], after.state_dict()["groups"]["positions"]) == (2048, 16384)
    after.load_state_dict(state)
    assert after.state_dict() == state
    assert sum(pieces(read + list(after)).values()) == 50


def test_a_state_changes_the_window_of_no_copy(url: str) -> None:
    batching, other = mdsx.Pack(64, length="tokens"), mdsx.Pack(64, length="tokens", window=8)
    first = loader(url, batching=batching, drop_last=False)
    second = copy(first)
    state = loader(url, batching=other).state_dict()
    second.load_state_dict(state)
    assert second.state_dict() == state != first.state_dict()
    assert pieces(first) == pieces(second) == EVERY


def test_a_sample_longer_than_a_row_is_named(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "uint16[*]"}) as out:
        for length in (3, 9, 5):
            out.write({"tokens": list(range(length))})
    with pytest.raises(mdsx.SampleError, match=r"sample 1: .*at most 8, found 9") as raised:
        next(iter(loader(str(tmp_path / "data"), 1, mdsx.Pack(8, length="tokens"))))
    assert "truncate" in str(raised.value)
    kept = next(iter(loader(str(tmp_path / "data"), 3, mdsx.Pack(8, length="tokens", oversize="truncate"))))
    assert kept["global_tokens"] == 16


def test_a_batch_that_cannot_be_planned_fails_with_its_own_error(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "uint8[*]"}) as out:
        out.write({"tokens": [1] * 9})
    batches = iter(loader(str(tmp_path / "data"), 1, mdsx.Pack(8, length="tokens")))
    for _ in range(4):
        with pytest.raises(mdsx.SampleError, match="at most 8, found 9") as raised:
            next(batches)
        assert raised.value.__context__ is None


def test_an_epoch_without_a_whole_batch_is_refused(url: str) -> None:
    found = loader(url, 1000)
    for _ in range(4):
        with pytest.raises(mdsx.UsageError, match="no batch of 1000; give"):
            next(iter(found))
    assert len(list(loader(url, 1000, drop_last=False))) == 1
    assert len(list(loader(url, 1000, epoch_steps=2))) == 2
    small, state = loader(url, 1), None
    for _ in small:
        state = small.state_dict() if small.epoch == 0 else state
    assert state is not None
    found.load_state_dict(state)
    assert list(found) == []  # the rest of an epoch may have no batch
    assert found.epoch == 1


@pytest.mark.parametrize(
    "options",
    [
        {"epoch_steps": 4, "batching": None},
        {"epoch_steps": 0},
        {"batching": "pack"},
        {"uneven": "repeat"},
        {"uneven": "repeat", "batching": TOKENS, "global_batch_size": 4, "micro_batch": 1},
        {"batch_size": None},
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(mdsx.UsageError):
        loader(url, **options)
    with pytest.raises(mdsx.UsageError, match="batch_size"):
        StreamingDataLoader(StreamingDataset(url), 8, batching=TOKENS)


@pytest.mark.parametrize("batching", [PACK, SPLIT, CONCAT, TOKENS])
def test_each_row_says_where_its_samples_are_from(url: str, batching: Any) -> None:
    found = [
        list(loader(url, batching=batching, info_column="_info", **options))
        for options in ({}, {"transform": dict}, {"num_workers": 1})
    ]
    shown = [[str(batch["_info"]) for batch in batches] for batches in found]
    assert shown[0] == shown[1] == shown[2]
    for batch in found[0]:
        if batching is TOKENS:  # as in batches of samples
            assert torch.equal(batch["_info"]["sample"], batch["id"])
            assert not batch["_info"]["epoch"].any()
            continue
        for records, numbers in zip(batch["_info"], batch["id"], strict=True):
            assert [info["sample"] for info in records] == list(numbers)
            assert all(info["epoch"] == info["dataset"] == 0 for info in records)


def test_a_mixture_in_runs_cannot_be_grouped(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="run= cannot be grouped"):
        loader(mdsx.Mixture([(url, 1)], run=8))


def test_a_small_cache_changes_no_group(remote_url: str, local_url: str, tmp_path: Path) -> None:
    """On a real S3 server, shards are evicted while later groups of their window still need them."""
    packed, columns = mdsx.Pack(64, length="text", window=16), ["id", "text"]
    cache = mdsx.Cache(tmp_path / "cache", limit="30kB")
    remote = StreamingDataset(remote_url, seed=3, cache=cache, columns=columns)
    found = StreamingDataLoader(remote, 5, batching=packed, drop_last=False)
    local = StreamingDataset(local_url, seed=3, columns=columns)
    expected = StreamingDataLoader(local, 5, batching=packed, drop_last=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [batch["id"] for batch in found] == [batch["id"] for batch in expected]
