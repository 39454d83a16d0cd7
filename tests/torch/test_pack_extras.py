"""Concatenated rows, labels, tokens that packing adds, component ids, and batches whose shapes never change."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

N = 300
LENGTHS = [number * 37 % 61 for number in range(N)]  # some are 0
SUM, SOME = sum(LENGTHS), sum(length > 0 for length in LENGTHS)
CONCAT = mdsx.Pack(64, length="tokens", kind="concat", window=16)
FLAT = mdsx.Pack(64, length="tokens", window=16, layout="flat", static=True)
BEGIN, END = 900_001, 900_002


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Value k of sample n is 100 n + k, and its mask is 1 for an even n."""
    path = str(tmp_path_factory.mktemp("extras") / "data")
    columns = {"id": "int64", "tokens": "int32[*]", "mask": "uint8[*]", "text": "str"}
    with mdsx.Writer(path, columns, shard_size=4096, lengths=["tokens"]) as out:
        for number, length in enumerate(LENGTHS):
            tokens = np.arange(100 * number, 100 * number + length, dtype=np.int32)
            mask = np.full(length, number % 2 == 0, np.uint8)
            out.write({"id": number, "tokens": tokens, "mask": mask, "text": "x" * length})
    return path


def loader(
    data: Any, batching: mdsx.Pack, batch_size: int = 3, rank: int = 0, world_size: int = 1, **options: Any
) -> StreamingDataLoader:
    of_data = {name: options.pop(name, None) for name in ("transform", "columns")}
    dataset = StreamingDataset(data, seed=3, rank=rank, world_size=world_size, **of_data)
    return StreamingDataLoader(dataset, batch_size, batching=batching, **{"drop_last": False, **options})


def pairs(batches: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return (token, label) at each place that is not padding, sorted."""
    found = list[tuple[int, int]]()
    for batch in batches:
        filled = batch["segment_ids"] > 0
        assert set(batch["labels"][~filled].tolist()) <= {-100}
        found += zip(batch["tokens"][filled].tolist(), batch["labels"][filled].tolist(), strict=True)
    return sorted(found)


def following(begin: int | None = None, end: int | None = None) -> list[tuple[int, int]]:
    """Return each token of the dataset with the next one of its sample, sorted."""
    found = list[tuple[int, int]]()
    for number, length in enumerate(LENGTHS):
        tokens = list(range(100 * number, 100 * number + length))
        if tokens:
            tokens = [each for each in (begin, *tokens, end) if each is not None]
            found += itertools.pairwise([*tokens, -100])
    return sorted(found)


# --- kind concat


def test_concatenated_rows_have_exactly_as_many_values(url: str) -> None:
    batches = list(loader(url, CONCAT))
    rows = torch.cat([(batch["segment_ids"] > 0).sum(1) for batch in batches]).tolist()
    windows = -(-N // 16)  # of one lane
    assert sum(size < 64 for size in rows) <= windows, "only the last row of a window is shorter"
    tokens = torch.cat([batch["tokens"][batch["segment_ids"] > 0] for batch in batches])
    assert len(tokens) == len(set(tokens.tolist())) == SUM
    assert sum(batch["global_tokens"] for batch in batches) == SUM
    assert sum(batch["global_samples"] for batch in batches) == N
    assert sum(len(row) for batch in batches for row in batch["text"]) > N, "a cut sample has its text in each row"


def test_pieces_are_as_those_of_split_samples(url: str) -> None:
    """In each row, segments begin at 1 and positions at 0."""
    for batch in loader(url, CONCAT):
        for segments, positions, tokens in zip(
            batch["segment_ids"], batch["position_ids"], batch["tokens"], strict=True
        ):
            for segment in segments.unique():
                count = int((segments == segment).sum())
                assert positions[segments == segment].tolist() == list(range(count))
                if segment:
                    assert tokens[segments == segment].diff().eq(1).all()


def test_concatenated_rows_are_those_of_groups(url: str) -> None:
    found = loader(url, mdsx.Pack(64, length="tokens", kind="concat"), 4)
    state = found.state_dict()
    order = mdsx.Order(found._reading.view.counts, seed=3, epoch=0)
    groups = mdsx.Groups(order, LENGTHS, capacity=64, kind="concat")
    assert state["groups"]["positions"] == groups.grouping.window
    assert (state["groups"]["kind"], state["groups"]["oversize"]) == ("concat", None)
    for batch, step in zip(found, groups.steps(4), strict=True):
        share = groups.share(step, 0, 1)
        numbers = np.concatenate([[0], np.cumsum(order.counts)])
        shards, samples = order.locate(share.positions)
        assert list(itertools.chain(*batch["id"])) == (numbers[shards] + samples).tolist()


def test_oversize_is_not_for_concatenated_rows() -> None:
    for oversize in ("error", "truncate", "split"):
        with pytest.raises(mdsx.UsageError, match=r"oversize is for kind='pack'.*remove oversize"):
            mdsx.Pack(64, length="tokens", kind="concat", oversize=oversize)
    with pytest.raises(mdsx.UsageError, match="kind must be 'pack' or 'concat'"):
        mdsx.Pack(64, length="tokens", kind="cat")  # type: ignore[arg-type]
    with pytest.raises(mdsx.UsageError, match="lengths of their own cannot be split"):
        mdsx.Pack(64, length=["tokens", "mask"], kind="concat")


def test_a_transform_that_lengthens_a_cut_sample_is_an_error(url: str) -> None:
    def longer(sample: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": np.append(sample["tokens"], 0)}

    with pytest.raises(mdsx.UsageError, match=r"length differs from the sample's.*transform must keep lengths"):
        list(loader(url, CONCAT, transform=longer))


def test_samples_that_fail_are_left_out_of_concatenated_rows(url: str) -> None:
    def fails(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] % 7 == 3:
            raise ValueError(sample["id"])
        return sample

    batching = mdsx.Pack(64, length="tokens", kind="concat", window=16, labels=True)
    found = pairs(loader(url, batching, transform=fails, on_error="skip"))
    assert found == [pair for pair in following() if pair[0] // 100 % 7 != 3]


# --- labels and added tokens


@pytest.mark.parametrize("kind", ["pack", "split", "concat"])
@pytest.mark.parametrize("begin", [None, BEGIN])
@pytest.mark.parametrize("end", [None, END])
def test_labels_are_the_next_values_on_any_ranks(url: str, kind: Any, begin: int | None, end: int | None) -> None:
    oversize: Any = "split" if kind == "split" else None
    batching = mdsx.Pack(
        64 if kind == "pack" else 20, length="tokens", kind="concat" if kind == "concat" else "pack", window=16,
        oversize=oversize, labels=True, begin=begin, end=end, pad_value={"mask": 7},
    )  # fmt: skip
    loaders = [loader(url, batching, 2, rank, 2) for rank in range(2)]
    read = [batch for each in loaders for batch in itertools.islice(each, 5)]
    state = json.loads(json.dumps(loaders[0].state_dict()))
    rest = loader(url, batching, 5)
    rest.load_state_dict(state)
    read += rest
    assert pairs(read) == following(begin, end)
    for batch in read:  # an added token has the pad value in other columns
        tokens, mask = batch["tokens"], batch["mask"]
        own = (batch["segment_ids"] > 0) & (tokens != BEGIN) & (tokens != END)
        assert torch.equal(mask[own], (tokens[own] // 100 % 2 == 0).byte())
        assert mask[~own].eq(7).all()
        assert batch["labels"].dtype == torch.int64


def test_added_tokens_count(url: str) -> None:
    added = mdsx.Pack(64, length="tokens", begin=BEGIN, end=END)
    found, plain = loader(url, added), loader(url, mdsx.Pack(64, length="tokens"))
    total = SUM + 2 * SOME
    assert found.plan().values == sum(batch["global_tokens"] for batch in found) == total
    assert found.state_dict()["groups"]["lengths"] == {**plain.state_dict()["groups"]["lengths"], "added": 2}
    assert "added" not in plain.state_dict()["groups"]["lengths"]
    next(iter(found))
    with pytest.raises(mdsx.StateError, match=r"groups\.lengths"):
        loader(url, mdsx.Pack(64, length="tokens", begin=BEGIN)).load_state_dict(found.state_dict())
    other = mdsx.Pack(64, length="tokens", begin=5, end=6)  # other tokens, of the same number
    loader(url, other).load_state_dict(found.state_dict())


def test_the_default_window_counts_added_tokens(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "int32[*]"}, lengths=["tokens"]) as out:
        for _ in range(50):
            out.write({"tokens": [1]})
    every: list[tuple[dict[str, Any], int]] = [({}, 2**14), ({"end": 2}, 2**13), ({"begin": 1, "end": 2}, 2**13)]
    for added, window in every:
        batching = mdsx.Pack(100, length="tokens", **added)
        assert loader(str(tmp_path / "data"), batching).state_dict()["groups"]["positions"] == window


def test_lengths_in_an_array_get_the_added_tokens(url: str) -> None:
    batching = mdsx.Pack(64, length=np.array(LENGTHS), kind="concat", end=END, labels=True, tokens="tokens")
    assert pairs(loader(url, batching)) == following(None, END)
    only = mdsx.Pack(64, length=np.array(LENGTHS), kind="concat", end=END, labels=True)
    assert pairs(loader(url, only, columns=["id", "tokens"])) == following(None, END)
    with pytest.raises(
        mdsx.UsageError, match=r"labels, end: the column of the tokens is ambiguous.*tokens, mask.*tokens="
    ):
        loader(url, only)


def test_a_sample_that_is_too_long_with_its_added_tokens_is_an_error(url: str) -> None:
    with pytest.raises(mdsx.SampleError, match="at most 61, including added tokens, found 62"):
        list(loader(url, mdsx.Pack(61, length="tokens", begin=BEGIN, end=END)))
    batch = next(iter(loader(url, mdsx.Pack(2, length="tokens", begin=BEGIN, oversize="truncate", labels=True))))
    assert batch["tokens"][0, 0] == BEGIN
    assert batch["labels"][0].tolist() == [int(batch["tokens"][0, 1]), int(batch["tokens"][0, 1]) + 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"begin": -1}, "begin is out of range"),
        ({"end": 2.5}, "end must be an integer"),
        ({"end": True}, "end must be an integer"),
        ({"end": 2**31}, "end of column 'tokens', type 'int32'.*dtypes="),
        ({"labels": True, "tokens": "text"}, "labels: the column of the tokens is not packed.*one of tokens, mask"),
        ({"labels": True, "dtypes": {"tokens": "float32"}}, "tokens must be integers that fit int64.*found float32"),
        ({"labels": True, "length": ["tokens", "mask"]}, "labels: columns that have lengths of their own"),
        ({"labels": "yes"}, "labels must be True or False.*'yes'"),
        ({"component_ids": 1}, "component_ids must be True or False.*1"),
        ({"max_segments": 8}, "max_segments needs layout='flat' and static=True"),
        ({"max_seqlen": "capacity"}, "max_seqlen needs layout='flat'"),
        ({"layout": "flat", "max_seqlen": "L"}, "max_seqlen must be 'longest' or 'capacity'"),
        ({"layout": "flat", "static": True, "max_segments": 0}, "max_segments is out of range"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(url: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        loader(url, mdsx.Pack(64, **{"length": "tokens", **given}))


def test_a_stored_column_with_the_name_of_an_added_one_is_an_error(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "int32[*]", "labels": "int32[*]", "component_ids": "int8"}) as out:
        out.write({"tokens": [1, 2], "labels": [3, 4], "component_ids": 5})
    data = str(tmp_path / "data")
    batch = next(iter(loader(data, mdsx.Pack(4, length="tokens"))))  # they are columns like others
    assert (batch["labels"].tolist(), batch["component_ids"]) == ([[3, 4, 0, 0]], [[5]])
    for name in ("labels", "component_ids"):
        given: dict[str, Any] = {name: True}
        with pytest.raises(mdsx.UsageError, match=f"column '{name}': packing adds.* '{name}'.*leave out {name}=True"):
            loader(data, mdsx.Pack(4, length="tokens", **given))


def test_a_column_of_another_length_is_named_with_the_one_it_follows(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "int32[*]", "mask": "int8[*]"}) as out:
        out.write({"tokens": [1, 2], "mask": [1]})
    every: list[dict[str, Any]] = [{}, {"begin": 0, "end": 1}]
    for added in every:
        with pytest.raises(mdsx.UsageError, match=r"column 'mask': .*expected 2, by 'tokens', found 1"):
            list(loader(str(tmp_path / "data"), mdsx.Pack(8, length="tokens", **added)))
        given = mdsx.Pack(8, length=np.array([2]), tokens="tokens", **added)
        with pytest.raises(
            mdsx.UsageError, match=r"column 'mask': .*expected 2, by the given lengths and column 'tokens', found 1"
        ):
            list(loader(str(tmp_path / "data"), given))


def test_columns_that_a_transform_makes_have_pad_values_types_and_labels(url: str) -> None:
    def tokenized(sample: dict[str, Any]) -> dict[str, Any]:
        ids = np.frombuffer(sample["text"].encode(), np.uint8)
        return {"ids": ids, "weights": np.ones(len(ids), np.float32)}

    batching = mdsx.Pack(
        64, length="text", kind="concat", pad_value={"weights": -1}, dtypes={"ids": "int64"}, labels=True, end=256,
        tokens="ids",
    )  # fmt: skip
    for workers in (0, 2):
        batches = list(loader(url, batching, transform=tokenized, num_workers=workers))
        ids, labels, weights = (torch.cat([batch[name] for batch in batches]) for name in ("ids", "labels", "weights"))
        assert ids.dtype == torch.int64
        assert (int((ids == ord("x")).sum()), int((ids == 256).sum())) == (SUM, SOME)
        assert (int((labels == ord("x")).sum()), int((labels == 256).sum())) == (SUM - SOME, SOME)
        assert int((weights == 1).sum()) == SUM
        assert weights[ids == 256].eq(-1).all()


# --- components


def test_component_ids_say_which_component_each_value_is_from(url: str) -> None:
    parts = {"a": (mdsx.Dataset(url).select(0, 200), 2), "b": (mdsx.Dataset(url).select(200, 300), 1)}
    for layout, workers in (("rows", 0), ("rows", 2), ("flat", 0)):
        batching = mdsx.Pack(64, length="tokens", kind="concat", layout=layout, component_ids=True, begin=BEGIN)  # type: ignore[arg-type]
        batches = list(loader(mdsx.Mixture(parts), batching, num_workers=workers))
        for batch in batches:
            components, tokens = batch["component_ids"], batch["tokens"]
            assert components.dtype == torch.int32
            assert components.shape == batch["position_ids"].shape == tokens.shape
            own = tokens != BEGIN
            filled = batch["segment_ids"] > 0 if layout == "rows" else torch.ones_like(own)
            assert torch.equal(components[own & filled], (tokens[own & filled] // 100 >= 200).int())
            assert components[~filled].eq(-1).all()
        assert {int(each) for batch in batches for each in batch["component_ids"].unique()} >= {0, 1}
    batch = next(iter(loader(url, mdsx.Pack(64, length=["tokens", "mask"], component_ids=True))))
    assert torch.equal(batch["component_ids"]["mask"], -(batch["segment_ids"]["mask"] == 0).int())


# --- static batches


@pytest.mark.parametrize("transform", [None, dict], ids=["stored", "transformed"])
def test_static_batches_have_one_shape(url: str, transform: Any) -> None:
    """Also the last step, which is short, and a rank without rows in it."""
    groups = loader(url, FLAT).plan().groups
    world = next(world for world in range(2, 99) if 0 < groups % (4 * world) < world)
    loaders = [loader(url, FLAT, 4, rank, world, transform=transform) for rank in range(world)]
    steps = list(zip(*loaders, strict=True))
    shapes = {
        (name, value.shape, value.dtype)
        for step in steps
        for batch in step
        for name, value in batch.items()
        if isinstance(value, torch.Tensor) and name != "id"
    }
    assert shapes == {
        ("tokens", (256,), torch.int32), ("mask", (256,), torch.uint8), ("position_ids", (256,), torch.int32),
        ("cu_seqlens", (257,), torch.int32),
    }  # fmt: skip
    assert {batch["max_seqlen"] for step in steps for batch in step} == {64}
    values = [int((batch["position_ids"] < 64).sum()) for step in steps for batch in step]
    assert set(values) == {256}
    filled = [len(batch["id"]) for batch in steps[-1]]
    assert min(filled) == 0 < max(filled)
    assert sorted(int(each) for step in steps for batch in step for each in batch["id"]) == list(range(N))


def test_padding_is_the_last_segment_and_empty_samples_have_none(url: str) -> None:
    plain = mdsx.Pack(64, length="tokens", window=16, layout="flat")
    longest = mdsx.Pack(64, length="tokens", window=16, layout="flat", static=True, max_seqlen="longest")
    for left, right, true in zip(loader(url, plain), loader(url, FLAT), loader(url, longest), strict=True):
        cuts, total = left["cu_seqlens"], len(left["tokens"])
        expected = cuts.unique().tolist()
        while expected[-1] < 192:  # the last batch has less than a row
            expected.append(min(expected[-1] + 64, 192))
        assert right["cu_seqlens"].tolist() == expected + [192] * (193 - len(expected))
        assert torch.equal(left["tokens"], right["tokens"][:total])
        assert right["tokens"][total:].eq(0).all()
        assert torch.equal(left["position_ids"], right["position_ids"][:total])
        assert true["max_seqlen"] == int(true["cu_seqlens"].diff().max()) >= left["max_seqlen"]


def test_more_segments_than_max_segments_are_an_error_that_says_how_many(url: str) -> None:
    found = mdsx.Pack(64, length="tokens", window=16, layout="flat", static=True, max_segments=40)
    batches = list(loader(url, found))
    assert {len(batch["cu_seqlens"]) for batch in batches} == {41}
    most = max(len(batch["cu_seqlens"].unique()) - 1 for batch in batches)
    fits = mdsx.Pack(64, length="tokens", window=16, layout="flat", static=True, max_segments=most)
    assert len(list(loader(url, fits))) == len(batches)
    few = mdsx.Pack(64, length="tokens", window=16, layout="flat", static=True, max_segments=most - 1)
    message = f"more samples than max_segments .expected at most {most - 1}, found {most}.*max_segments="
    with pytest.raises(mdsx.UsageError, match=message):
        list(loader(url, few))


def test_static_rows_are_filled_up_with_empty_ones(url: str) -> None:
    batching = mdsx.Pack(64, length="tokens", window=16, static=True, labels=True)
    loaders = [loader(url, batching, 4, rank, 3) for rank in range(3)]
    steps = list(zip(*loaders, strict=True))
    assert {batch[name].shape for step in steps for batch in step for name in ("tokens", "labels")} == {(4, 64)}
    assert {len(batch["text"]) for step in steps for batch in step} == {4}
    assert pairs(batch for step in steps for batch in step) == following()


@pytest.mark.parametrize("steps", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_model_is_compiled_once(url: str, steps: int) -> None:
    from torch._dynamo.testing import CompileCounter

    def model(tokens: torch.Tensor, positions: torch.Tensor, cuts: torch.Tensor, longest: int) -> torch.Tensor:
        segments = torch.searchsorted(cuts, torch.arange(tokens.shape[0]), right=True)
        return (tokens * positions + segments).sum() / longest

    counts = {}
    for static in (True, False):
        batching = mdsx.Pack(
            64, length="tokens", kind="concat", window=16, layout="flat", static=static, max_seqlen="capacity"
        )
        torch._dynamo.reset()
        counter = CompileCounter()
        compiled, done = torch.compile(model, backend=counter), 0
        found = loader(url, batching, 2)
        while done < (steps if static else 60):  # epochs end with a batch of fewer rows
            for batch in found:
                compiled(batch["tokens"], batch["position_ids"], batch["cu_seqlens"], batch["max_seqlen"])
                done += 1
        counts[static] = counter.frame_count
    assert counts[True] == 1
    assert counts[False] > 1, "without static, shapes differ"


def test_a_loader_of_numpy_has_the_same(url: str) -> None:
    batching = mdsx.Pack(64, length="tokens", kind="concat", layout="flat", static=True, labels=True, end=END)
    arrays = mdsx.Loader(url, seed=3, batch_size=3, batching=batching, drop_last=False)
    for left, right in zip(arrays, loader(url, batching, num_workers=2), strict=True):
        assert left.keys() == right.keys()
        for name in ("tokens", "labels", "cu_seqlens", "position_ids"):
            assert np.array_equal(left[name], right[name].numpy())
            assert left[name].dtype == right[name].numpy().dtype
