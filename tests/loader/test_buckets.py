"""Batches of one shape in a loader: what a batch has, how ranks divide it, states, plans, and refused arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from tests.order.reference_buckets import bucket_of

SIZES: list[Any] = [(8, 8), (9, 7), (7, 9)]
LANES = mdsx.Shuffle(lanes=64)  # a window has positions of each


def size_of(number: int) -> tuple[int, int]:
    return 3 + number * 37 % 17, 2 + number * number % 13


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("buckets")
    with mdsx.Writer(root, {"id": "int64", "height": "uint16", "width": "uint16", "kind": "uint8"}) as out:
        for number in range(200):
            height, width = size_of(number)
            out.write({"id": number, "height": height, "width": width, "kind": number % 3})
    return root


def opened(data: Any, *arguments: Any, **options: Any) -> mdsx.Loader:
    return mdsx.Loader(data, *arguments, **{"shuffle": LANES, **options})


def batching(**options: Any) -> mdsx.Buckets:
    given: dict[str, Any] = {"by": ("height", "width"), "sizes": SIZES, "global_batch_size": 12, "window": 12}
    return mdsx.Buckets(**{**given, **options})


def run(url: Any, world: int, **options: Any) -> list[list[Any]]:
    """Return the batches of each rank in an epoch."""
    given: dict[str, Any] = {"seed": 1, "batching": batching(), **options}
    return [list(opened(url, rank=rank, world_size=world, **given)) for rank in range(world)]


def ids(batches: list[Any]) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


# --- batches


def test_a_batch_names_its_bucket_and_has_only_its_samples(url: Path) -> None:
    (batches,) = run(url, 1)
    assert sorted(number for batch in ids(batches) for number in batch) == list(range(200))
    for batch in batches:
        assert batch["bucket"] in SIZES
        for number in batch["id"].tolist():
            assert SIZES[bucket_of(size_of(number), SIZES) or 0] == batch["bucket"]
    assert {len(batch["id"]) for batch in batches} - {12} != {len(batch["id"]) for batch in batches}  # most are whole


def test_ranks_divide_each_step(url: Path) -> None:
    (whole,) = run(url, 1)
    ranks = run(url, 5)
    assert {len(each) for each in ranks} == {len(whole)}
    for step, batch in enumerate(whole):
        parts = [each[step] for each in ranks]
        assert [number for part in parts for number in part["id"].tolist()] == batch["id"].tolist()
        assert {part["bucket"] for part in parts} == {batch["bucket"]}
        sizes = [len(part["id"]) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_a_rank_without_samples_gets_an_empty_batch_with_the_keys_of_the_others(url: Path) -> None:
    ranks = run(url, 9)
    without = [(step, batch) for each in ranks for step, batch in enumerate(each) if not len(batch["id"])]
    assert without
    for step, batch in without:
        assert batch.keys() == ranks[0][0].keys()
        assert batch["bucket"] == ranks[0][step]["bucket"]


def test_repeated_samples_give_all_ranks_one_size(url: Path) -> None:
    ranks = run(url, 5, uneven="repeat")
    for parts in zip(*ranks, strict=True):
        assert len({len(part["id"]) for part in parts}) == 1
    assert sum(int(batch["valid"].sum()) for each in ranks for batch in each) == 200


def test_each_bucket_may_have_a_batch_size_of_its_own(url: Path) -> None:
    (batches,) = run(url, 1, batching=batching(global_batch_size=[4, 6, 10], tails="drop"))
    assert {(batch["bucket"], len(batch["id"])) for batch in batches} == set(zip(SIZES, (4, 6, 10), strict=True))


def test_tails_are_dropped_if_asked(url: Path) -> None:
    (kept,), (whole,) = run(url, 1), run(url, 1, batching=batching(tails="drop"))
    assert ids(whole) == [batch for batch in ids(kept) if len(batch) == 12]
    assert len(whole) < len(kept)


def test_no_sample_is_read_for_dropped_tails(url: Path) -> None:
    made = list[int]()

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        made.append(sample["id"])
        return sample

    (batches,) = run(url, 1, batching=batching(tails="drop"), transform=transform, epoch_steps=20)
    assert sorted(made) == sorted(number for batch in ids(batches) for number in batch)


def test_micro_batches_are_alike_on_all_ranks(url: Path) -> None:
    (whole,), ranks = run(url, 1), run(url, 3, micro_batch=2)
    steps = iter(zip(*ranks, strict=True))
    for batch in whole:
        n = len(batch["id"])
        parts = [next(steps) for _ in range(-(-n // 6))]
        for rank in range(3):
            mine = [number for part in parts for number in part[rank]["id"].tolist()]
            assert mine == batch["id"].tolist()[rank * n // 3 : (rank + 1) * n // 3]
            assert all(len(part[rank]["id"]) <= 2 for part in parts)
    assert next(steps, None) is None


def resized(sample: dict[str, Any]) -> dict[str, Any]:
    height, width = sample["bucket"]
    return {"id": sample["id"], "pixels": np.full((height, width), sample["id"], np.float32)}


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_threads": 2}], ids=str)
def test_a_transform_finds_the_bucket_in_each_sample(url: Path, options: dict[str, Any]) -> None:
    ranks = run(url, 9, transform=resized, **options)
    for each in ranks:
        for batch in each:
            assert batch["pixels"].shape == (len(batch["id"]), *batch["bucket"])


def collated(samples: list[Any]) -> Any:
    return {"id": np.array([each["id"] for each in samples]), "seen": [each["bucket"] for each in samples]}


def test_a_collate_fn_finds_the_bucket_in_each_sample(url: Path) -> None:
    (batches,), (plain,) = run(url, 1, collate_fn=collated), run(url, 1)
    assert ids(batches) == ids(plain)
    assert [set(batch["seen"]) for batch in batches] == [{batch["bucket"]} for batch in plain]


def failing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] % 3:
        raise ValueError(sample["id"])
    return resized(sample)


def test_samples_that_fail_are_left_out_of_their_batch(url: Path) -> None:
    (batches,), (plain,) = run(url, 1, transform=failing, on_error="skip"), run(url, 1)
    assert ids(batches) == [[number for number in batch if not number % 3] for batch in ids(plain)]
    for batch, other in zip(batches, plain, strict=True):
        assert batch["pixels"].shape[1:] == batch["bucket"] == other["bucket"]


def test_buckets_may_be_the_numbers_of_a_column(url: Path) -> None:
    (batches,) = run(url, 1, batching=batching(by="kind", sizes=[2, 0, 1]))
    for batch in batches:
        assert set(batch["kind"].tolist()) == {batch["bucket"]}
    (renamed,) = run(url, 1, columns={"id": "id", "bucket": "kind"}, batching=batching(by="bucket", sizes=[2, 0, 1]))
    assert [batch["bucket"] for batch in renamed] == [batch["bucket"] for batch in batches]


def test_sizes_may_be_given_as_an_array(url: Path) -> None:
    sizes = np.array([size_of(number) for number in range(200)])
    assert ids(run(url, 1, batching=batching(by=sizes))[0]) == ids(run(url, 1)[0])
    kinds = np.arange(200) % 3
    by_array = batching(by=kinds, sizes=range(3))
    assert ids(run(url, 1, batching=by_array)[0]) == ids(run(url, 1, batching=batching(by="kind", sizes=range(3)))[0])


def test_images_are_batched_by_the_sizes_in_their_headers(tmp_path: Path) -> None:
    import io

    import PIL.Image

    with mdsx.Writer(tmp_path, {"id": "int64", "image": "png"}) as out:
        for number in range(40):
            data, (height, width) = io.BytesIO(), size_of(number)
            PIL.Image.new("RGB", (width, height)).save(data, "PNG")
            out.write({"id": number, "image": data.getvalue()})
    of_images = batching(by="image")
    with pytest.raises(mdsx.MissingError, match=r"sizes of the images are not stored.*mdsx sizes"):
        run(tmp_path, 1, batching=of_images)
    mdsx.write_sizes(tmp_path)
    (batches,) = run(tmp_path, 1, batching=of_images)
    given = np.array([size_of(number) for number in range(40)])
    assert ids(batches) == ids(run(tmp_path, 1, batching=batching(by=given))[0])


def test_the_number_of_batches_is_known_after_a_plan(url: Path) -> None:
    loader = opened(url, batching=batching())
    with pytest.raises(TypeError, match="is unknown"):
        len(loader)
    plan = loader.plan()
    assert plan.steps == len(loader) == len(list(loader))
    assert plan.samples == plan.values == 200
    assert plan.fill == 200 / (12 * plan.groups)
    assert loader.batch_size == 12
    many = opened(url, batching=batching(), micro_batch=5, rank=0, world_size=2)
    assert many.plan().steps == len(list(many))
    with pytest.raises(TypeError, match="micro-batches"):
        len(many)


def test_a_trace_says_which_samples_a_step_has(url: Path) -> None:
    loader = opened(url, seed=1, batching=batching())
    traced = [[item.sample for item in loader.trace(step)] for step in range(3)]
    assert traced == ids(list(loader))[:3]


# --- states


def halfway(url: Path, given: mdsx.Buckets, taken: int = 3) -> dict[str, Any]:
    loader = opened(url, seed=1, batching=given)
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    found: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return found


def test_a_state_has_the_buckets(url: Path) -> None:
    groups = halfway(url, batching())["groups"]
    assert groups["kind"] == "buckets"
    assert groups["sizes"] == [[8, 8], [9, 7], [7, 9]]
    assert groups["batch_sizes"] == [12, 12, 12]
    assert groups["positions"] == 12
    assert [each["column"] for each in groups["lengths"]["pair"]] == ["height", "width"]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"sizes": [(8, 8), (9, 7), (7, 10)]}, r"groups\.sizes"),
        ({"sizes": SIZES[::-1]}, r"groups\.sizes"),
        ({"sizes": SIZES[:2]}, r"groups\.sizes"),
        ({"global_batch_size": [12, 12, 11]}, r"groups\.batch_sizes"),
        ({"window": 13}, r"groups\.positions"),
        ({"by": ("width", "height")}, r"groups\.lengths"),
    ],
)
def test_a_state_in_mid_window_needs_the_same_buckets(url: Path, options: dict[str, Any], place: str) -> None:
    loader = opened(url, seed=1, batching=batching(**options))
    with pytest.raises(mdsx.StateError, match=f"{place}.*middle of a window"):
        loader.load_state_dict(halfway(url, batching()))


def test_groups_of_another_kind_in_mid_window_are_refused(url: Path) -> None:
    bounded = mdsx.MaxTokens(60, length="height")
    with pytest.raises(mdsx.StateError, match=r"groups\.kind.*middle of a window"):
        opened(url, seed=1, batching=bounded).load_state_dict(halfway(url, batching()))
    other = opened(url, seed=1, batching=bounded)
    next(iter(other))
    with pytest.raises(mdsx.StateError, match=r"groups\.kind.*middle of a window"):
        opened(url, seed=1, batching=batching()).load_state_dict(other.state_dict())
    with pytest.raises(mdsx.StateError, match="groups"):
        opened(url, 4, seed=1).load_state_dict(halfway(url, batching()))


def test_tails_may_change_at_any_time(url: Path) -> None:
    (kept,) = run(url, 1)
    state = halfway(url, batching())
    loader = opened(url, seed=1, batching=batching(tails="drop"))
    loader.load_state_dict(state)
    assert ids(list(loader)) == [batch for batch in ids(kept)[3:] if len(batch) == 12]
    assert loader.epoch == 1
    before = sum(len(batch) for batch in ids(kept)[:3])
    consumed = loader.consumed
    assert before < consumed.samples[""] < consumed.samples[""] + consumed.dropped_samples == 200


def test_the_default_window_is_that_of_the_state(url: Path) -> None:
    state = halfway(url, batching(window=12))
    loader = opened(url, seed=1, batching=batching(window=None))
    loader.load_state_dict(state)
    assert ids(list(loader)) == ids(run(url, 1)[0])[3:]


def test_buckets_may_change_at_the_end_of_a_window(url: Path) -> None:
    loader = opened(url, seed=1, batching=batching())
    for _ in loader:
        pass
    other = opened(url, seed=1, batching=batching(sizes=range(3), by="kind"))
    other.load_state_dict(loader.state_dict())
    assert sorted(number for batch in ids(list(other)) for number in batch) == list(range(200))


# --- plans


def test_a_plan_changes_buckets_at_a_number_of_samples(url: Path) -> None:
    plan = mdsx.Plan(
        {0: mdsx.Phase(batching=batching()), 90: mdsx.Phase(batching=batching(sizes=SIZES[:2], global_batch_size=7))}
    )
    loader = opened(url, seed=1, shuffle=mdsx.Shuffle(lanes=8), plan=plan)
    batches, state = list[Any](), dict[str, Any]()
    for number, batch in enumerate(loader):
        batches.append(batch)
        if number == 2:
            state = json.loads(json.dumps(loader.state_dict()))
    assert sorted(number for batch in ids(batches) for number in batch) == list(range(200))
    changed = False
    for batch in batches:
        if not changed and (changed := len(batch["id"]) == 7):
            first = batch["id"].tolist()
        assert not changed or batch["bucket"] in SIZES[:2]
    assert changed
    assert sum(len(batch["id"]) for batch in batches[: ids(batches).index(first)]) == 96  # a window of 8 lanes
    resumed = mdsx.Loader(url, seed=1, plan=plan)
    resumed.load_state_dict(state)
    assert ids(list(resumed)) == ids(batches)[3:]
    planned: Any = mdsx.Loader(url, seed=1, plan=plan).plan(until=400)
    assert [sum(source.samples for source in phase.sources.values()) for phase in planned.phases] == [90, 310]
    assert all(source.tokens is None for phase in planned.phases for source in phase.sources.values())


def test_a_plan_of_buckets_counts_samples(url: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="thresholds of this run count samples"):
        opened(url, plan=mdsx.Plan({0: mdsx.Phase(batching=batching()), mdsx.Tokens(100): mdsx.Phase()}))
    of_lengths = mdsx.Phase(batching=mdsx.MaxTokens(60, length="height"))
    with pytest.raises(mdsx.UsageError, match=r"count tokens|all phases of a run"):
        opened(url, plan=mdsx.Plan({0: mdsx.Phase(batching=batching()), 100: of_lengths}))
    described = mdsx.Plan.from_json(
        {
            "phases": {
                "0": {"batching": {"kind": "buckets", "by": ["height", "width"], "sizes": [[8, 8], [9, 7]],
                                   "global_batch_size": 4}},
                "100": {},
            }
        }
    )  # fmt: skip
    assert [type(at) for at in described.phases] == [int, int]
    assert len(list(opened(url, plan=described))) > 10


def test_a_run_changes_its_buckets_by_change(url: Path) -> None:
    loader = opened(url, seed=1, batching=batching())
    batches = list[Any]()
    for batch in loader:
        batches.append(batch)
        if len(batches) == 2:
            loader.change(mdsx.Phase(batching=batching(global_batch_size=5)))
    assert sorted(number for batch in ids(batches) for number in batch) == list(range(200))
    assert len(batches[-2]["id"]) <= 5 < len(batches[2]["id"])


def test_a_run_continues_with_other_components(url: Path, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "new", {"id": "int64", "height": "uint16", "width": "uint16", "kind": "uint8"}) as out:
        for number in range(1000, 1040):
            out.write({"id": number, "height": 8, "width": 8, "kind": 0})
    parts: dict[str, Any] = {"old": (url, 1), "new": (tmp_path / "new", 1)}
    lanes = mdsx.Shuffle(lanes=8)
    loader = opened(mdsx.Mixture({"old": parts["old"]}), seed=1, shuffle=lanes, batching=batching())
    before = [next(iterator) for iterator in [iter(loader)] for _ in range(3)]
    changed = mdsx.change(loader.state_dict(), both := mdsx.Mixture(parts))
    ranks = [mdsx.Loader(both, seed=1, batching=batching(), rank=rank, world_size=2) for rank in range(2)]
    for each in ranks:
        each.load_state_dict(changed)
    iterators = [iter(each) for each in ranks]
    after = [number for _ in range(12) for each in iterators for number in next(each)["id"].tolist()]
    old = [number for batch in ids(before) for number in batch] + [number for number in after if number < 1000]
    assert len(set(old[:200])) == len(old[:200])
    assert any(number >= 1000 for number in after)


# --- bad input

Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sizes": [(8, 8), (9, 7), (8, 8)]}, "two buckets have the same size.*remove one of them"),
        ({"sizes": [(8, 8), (16, 16)]}, "same aspect ratio"),
        ({"global_batch_size": 0}, "global_batch_size is out of range"),
        ({"global_batch_size": [1, 2]}, "one for each.*expected 3, found 2"),
        ({"tails": "pad"}, "tails must be 'keep' or 'drop'"),
        ({"window": 0}, "window is out of range"),
        ({"by": 7}, "by does not give the size"),
        ({"by": ("height", "width", "id")}, "by does not give the size"),
        ({"by": np.zeros(200)}, "by does not give the size"),
        ({"by": np.zeros(200, int)}, "a height and a width for each sample"),
        ({"by": ("height", "width"), "sizes": [1, 2]}, "two columns are a height and a width"),
        ({"by": ("height", "depth")}, "'depth': there is no such column"),
        ({"by": "height"}, "only a column of encoded images has.*both columns"),
        ({"by": np.zeros((100, 2), int)}, "one length per sample.*found 100"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_a_bad_argument_is_refused(url: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(mdsx.UsageError, match=says):
        opened(url, batching=batching(**options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 4}, "mdsx.Buckets determines the batch size.*found 4.*remove batch_size"),
        ({"global_batch_size": 4}, "mdsx.Buckets determines the batch size.*found 4"),
        ({"micro_batch": 0}, "micro_batch is out of range"),
        ({"columns": {"id": "id", "height": "height", "width": "width", "bucket": "kind"}}, "also a column; rename"),
        ({"info_column": "bucket"}, "also a column; rename"),
    ],
    ids=str,
)
def test_arguments_of_a_loader_that_do_not_fit_are_refused(url: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(mdsx.UsageError, match=says):
        opened(url, batching=batching(), **options)


def test_a_sample_without_a_size_is_named(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"id": "int64", "height": "uint16", "width": "uint16"}) as out:
        for number in range(9):
            out.write({"id": number, "height": 0 if number == 5 else 8, "width": 8})
    with pytest.raises(mdsx.SampleError, match=r"sample 5: a sample has no size.*height 0, width 8.*select"):
        list(opened(tmp_path, batching=batching()))
    some = mdsx.Dataset(tmp_path).select([0, 1, 2, 3, 4, 6, 7, 8])
    assert sum(map(len, ids(list(opened(some, batching=batching()))))) == 8
    by_number = batching(by="height", sizes=[8, 9])
    with pytest.raises(mdsx.SampleError, match=r"sample 5: a sample's number belongs to no bucket.*found 0"):
        list(opened(tmp_path, batching=by_number))


@pytest.mark.parametrize("epoch_steps", [None, 3])
def test_an_epoch_without_a_whole_batch_is_refused(url: Path, epoch_steps: int | None) -> None:
    loader = opened(url, batching=batching(global_batch_size=150, tails="drop"), epoch_steps=epoch_steps)
    with pytest.raises(mdsx.UsageError, match=r"no bucket has enough samples.*tails"):
        list(loader)


def test_a_mixture_in_runs_cannot_have_buckets(url: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="a mixture with run= cannot be grouped"):
        mdsx.Loader(mdsx.Mixture({"a": (url, 1), "b": (url, 1)}, run=16), batching=batching())
