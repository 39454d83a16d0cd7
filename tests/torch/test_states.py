"""The state of every kind of run, loaded by every kind of run: it continues exactly, or a StateError says why not."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

import mdsx
from mdsx.torch import StreamingDataset
from tests.conftest import Often

SIZES = {"a": 60, "b": 24, "c": 16}
FIRSTS = {"a": 0, "b": 1000, "c": 2000}  # the numbers of their first samples
SHUFFLE = mdsx.Shuffle(2, 16)
PACK = mdsx.Pack(24, length="tokens", window=5)
BOUND = mdsx.MaxTokens(24, length="tokens", window=5)


class Sources(NamedTuple):
    """Paths of datasets, and the fingerprint that `appended` had before a part was appended to it."""

    a: str
    b: str
    c: str
    scores: str
    appended: str
    before: str


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    root = tmp_path_factory.mktemp("states")

    def write(path: Path, name: str) -> None:
        with mdsx.Writer(path, {"id": "int64", "tokens": "int32[*]"}, shard_size=700) as out:
            for number in range(FIRSTS[name], FIRSTS[name] + SIZES[name]):
                out.write({"id": number, "tokens": np.zeros(number * 7 % 23, np.int32)})

    for name in SIZES:
        write(root / name, name)
    with mdsx.Writer(root / "scores", {"score": "float32"}) as out:
        out.write_batch({"score": np.arange(SIZES["a"], dtype=np.float32)})
    write(root / "appended", "a")
    before = mdsx.Dataset(root / "appended").fingerprint
    write(root / "appended" / "part-00001", "b")
    mdsx.append(root / "appended", "part-00001")
    a, b, c, scores, appended = (str(root / name) for name in ("a", "b", "c", "scores", "appended"))
    return Sources(a, b, c, scores, appended, before)


def weighted(sources: Sources, a: float = 2, **options: Any) -> mdsx.Mixture:
    return mdsx.Mixture({"a": (sources.a, a), "b": (sources.b, 1)}, epoch_samples=64, **options)


def scheduled(sources: Sources, *schedule: tuple[int, list[int]]) -> mdsx.Mixture:
    return mdsx.Mixture({"a": sources.a, "b": sources.b}, schedule=dict(schedule), epoch_samples=64)


class Kind(NamedTuple):
    """A kind of run: what is read, and how it is batched."""

    dataset: Callable[[Sources], Any]
    options: Mapping[str, Any] = MappingProxyType({})
    reweighted: bool = False  # at the start of the run


DATASETS: dict[str, Kind] = {
    "dataset": Kind(lambda of: of.a),
    "epoch_samples": Kind(lambda of: of.a, {"epoch_samples": 64}),
    "unshuffled": Kind(lambda of: of.a, {"shuffle": False}),
    "seed": Kind(lambda of: of.a, {"seed": 8}),
    "selection": Kind(lambda of: mdsx.Dataset(of.a).select(range(40))),
    "split": Kind(lambda of: mdsx.Dataset(of.a).split(0.8, 0.2, seed=1)[0]),
    "zip": Kind(lambda of: mdsx.zip(of.a, of.scores)),
    "appended": Kind(lambda of: of.appended),
    "snapshot": Kind(lambda of: mdsx.Dataset(of.appended, snapshot=of.before)),
    "mixture of each once": Kind(lambda of: mdsx.Mixture([of.a, of.b])),
    "mixture": Kind(weighted),
    "mixture, other proportions": Kind(lambda of: weighted(of, 3)),
    "mixture, reweighted": Kind(weighted, {}, reweighted=True),
    "mixture, schedule of one": Kind(lambda of: scheduled(of, (0, [2, 1]))),
    "mixture, schedule": Kind(lambda of: scheduled(of, (0, [2, 1]), (40, [1, 1]))),
    "mixture, other schedule": Kind(lambda of: scheduled(of, (0, [2, 1]), (150, [1, 1]))),
    "mixture, other component": Kind(
        lambda of: mdsx.Mixture({"a": (of.a, 2), "b": (of.c, 1)}, epoch_samples=64),
    ),
    "mixture, more components": Kind(
        lambda of: mdsx.Mixture({"a": (of.a, 2), "b": (of.b, 1), "c": (of.c, 1)}, epoch_samples=64),
    ),
    "mixture in runs": Kind(lambda of: weighted(of, run=8)),
}
BATCHINGS: dict[str, dict[str, Any]] = {
    "samples": {},
    "packed": {"batching": PACK},
    "packed, 3 steps": {"batching": PACK, "epoch_steps": 3},
    "bounded": {"batching": BOUND},
    "bounded, 5 steps": {"batching": BOUND, "epoch_steps": 5},
}
KINDS = {
    f"{name}: {how}": Kind(kind.dataset, {**kind.options, **options}, kind.reweighted)
    for name, kind in DATASETS.items()
    for how, options in BATCHINGS.items()
    if how == "samples" or name in ("dataset", "mixture", "mixture, schedule")
}


def loader(kind: Kind, sources: Sources) -> Any:
    size = {"batch_size": 4} if "batching" not in kind.options else {}
    if kind.options.get("batching") is PACK:
        size = {"batch_size": 2}
    options: dict[str, Any] = {"shuffle": SHUFFLE, "seed": 7, "drop_last": False, **size, **kind.options}
    return mdsx.Loader(kind.dataset(sources), rank=0, world_size=1, columns=["id", "tokens"], **options)


def ids(batch: Any) -> list[int]:
    return [int(number) for row in batch["id"] for number in (row if isinstance(row, list) else [row])]


class Stop(NamedTuple):
    """Where a run of a kind was interrupted: its state, and all samples that it handed out before."""

    state: dict[str, Any]
    seen: tuple[int, ...]


@pytest.fixture(scope="module")
def stops(sources: Sources) -> dict[str, list[Stop]]:
    """Of each kind: at the start, in the middle of windows and epochs, and, in groups, at the ends of two windows."""
    found = {}
    for name, kind in KINDS.items():
        made, every = loader(kind, sources), []
        if kind.reweighted:
            made.reweight([5, 1])
        every.append(Stop(made.state_dict(), ()))
        while len(every) < 60:
            for batch in made:
                every.append(Stop(made.state_dict(), (*every[-1].seen, *ids(batch))))
        ends = [stop for stop in every if "groups" in stop.state and stop.state["groups"]["taken"] == 0][1:6]
        found[name] = [every[0], every[3], every[17], *ends]
    return found


@pytest.fixture(scope="module")
def orders(sources: Sources) -> dict[str, list[list[int]]]:
    """Of each kind: the samples of six epochs of its order, one by one."""
    found = {}
    for name, kind in KINDS.items():
        options = {key: value for key, value in kind.options.items() if key not in ("batching", "epoch_steps")}
        made = loader(kind._replace(options={**options, "batch_size": 1}), sources)
        if kind.reweighted:
            made.reweight([5, 1])
        found[name] = [[number for batch in made for number in ids(batch)] for _ in range(6)]
    return found


def later(loader: Any) -> Iterator[Any]:
    """Yield the batches of all later passes."""
    while True:
        yield from loader


@pytest.mark.parametrize("name", KINDS)
def test_a_state_continues_exactly_or_is_refused(
    sources: Sources, stops: dict[str, list[Stop]], orders: dict[str, list[list[int]]], name: str, often: Often
) -> None:
    continued, refused = set[str](), list[mdsx.StateError]()
    for number, (origin, of_kind) in enumerate(stops.items()):
        tried = of_kind if origin == name or often(0, 1) else [of_kind[number % len(of_kind)]]
        for stop in tried:
            resumed = loader(KINDS[name], sources)
            before = resumed.state_dict()
            try:
                resumed.load_state_dict(json.loads(json.dumps(stop.state)))
            except mdsx.StateError as error:
                refused.append(error)
                assert resumed.state_dict() == before
                continue
            continued.add(origin)
            seen, order = list(stop.seen), orders[origin]
            for taken, batch in enumerate(later(resumed)):
                seen += ids(batch)
                state = resumed.state_dict()
                groups = state.get("groups", {"taken": 0})
                if taken > 5 and not groups["taken"]:  # all samples before the state's position came, and no others
                    break
            epoch = groups.get("epoch", state["epoch"])
            wanted = [*itertools.chain(*order[:epoch]), *order[epoch][: state["position"]]]
            assert Counter(seen) == Counter(wanted), (origin, stop.state)
    assert all(error.place for error in refused)
    assert name in continued
    if often(0, 1):
        assert {origin for origin in KINDS if origin.split(":")[0] == name.split(":")[0]} <= continued


@pytest.mark.parametrize(
    ("origin", "name", "place", "message"),
    [
        ("mixture", "mixture, schedule", "phases", "another schedule.*by reweight"),
        ("mixture, schedule", "mixture", "phases", "another schedule.*by reweight"),
        ("mixture, schedule", "mixture, other schedule", "phases", "another schedule.*by reweight"),
        ("mixture", "mixture, other proportions", "phases", r"other proportions .*by reweight"),
        ("mixture, reweighted", "mixture, other proportions", "phases", r"other proportions .*by reweight"),
        ("mixture", "mixture, other component", "components", "component 'b'.*that the run had; .*snapshot="),
        ("mixture", "mixture, more components", "components", "component 'c'.*no such component"),
        ("mixture, more components", "mixture", "components", "component 'c'.*no such component"),
        ("mixture", "dataset", "phases", "a mixture with proportions"),
        ("mixture", "mixture of each once", "phases", "a mixture with proportions"),
        ("mixture of each once", "dataset", "components", "the state belongs to a mixture"),
        ("dataset", "mixture", "fingerprint", "another dataset"),
        ("mixture", "mixture in runs", "run", "another run="),
        ("selection", "dataset", "fingerprint", "another dataset.*snapshot"),
        ("dataset", "seed", "seed", "seed=7 to resume"),
    ],
)
def test_a_refusal_names_what_differs_and_the_way_out(
    sources: Sources, stops: dict[str, list[Stop]], origin: str, name: str, place: str, message: str
) -> None:
    with pytest.raises(mdsx.StateError, match=message) as caught:
        loader(KINDS[f"{name}: samples"], sources).load_state_dict(stops[f"{origin}: samples"][1].state)
    assert caught.value.place == place


@pytest.mark.parametrize("name", ["dataset", "mixture of each once", "mixture", "mixture in runs"])
def test_a_run_takes_the_lanes_and_the_block_of_a_state_where_it_has_none(sources: Sources, name: str) -> None:
    kind = KINDS[f"{name}: samples"]

    def run(shuffle: bool | mdsx.Shuffle) -> mdsx.Loader:
        return mdsx.Loader(
            kind.dataset(sources), 4, shuffle=shuffle, seed=7, rank=0, world_size=1, columns=["id"], **kind.options
        )

    def three_epochs(loader: mdsx.Loader) -> list[list[int]]:
        return [ids(batch) for _ in range(3) for batch in loader]

    for state_has in (mdsx.Shuffle(2, 16), mdsx.Shuffle(4, 20), mdsx.Shuffle(8, 5)):
        saved = run(state_has)
        for _ in itertools.islice(saved, 3):
            state = saved.state_dict()
        saved.resume()
        wanted = three_epochs(saved)
        lanes, block = state_has.lanes, state_has.shuffle_block
        resumed = run(True)
        for given in (True, mdsx.Shuffle(lanes=lanes), mdsx.Shuffle(shuffle_block=block), state_has):
            resumed = resumed if given is True else run(given)
            resumed.load_state_dict(run(mdsx.Shuffle(1, 9)).state_dict() if given is True else state)
            resumed.load_state_dict(state)  # a second state counts, whatever the first one had
            assert three_epochs(resumed) == wanted
        with pytest.raises(mdsx.StateError, match=f"lanes={lanes}, shuffle_block={block}") as caught:
            run(mdsx.Shuffle(lanes=lanes, shuffle_block=11)).load_state_dict(state)
        assert caught.value.place == "shuffle_block"


def test_a_dataset_takes_the_lanes_and_the_block_of_a_state_too(sources: Sources) -> None:
    def run(shuffle: bool | mdsx.Shuffle) -> StreamingDataset:
        return StreamingDataset(sources.a, columns=["id"], seed=7, shuffle=shuffle, rank=0, world_size=1, batch_size=4)

    saved, resumed = run(mdsx.Shuffle(4, 20)), run(True)
    batches = iter(saved)
    for _ in range(3):
        next(batches)
    resumed.load_state_dict(saved.state_dict())
    assert [ids(batch) for batch in resumed] == [ids(batch) for batch in batches]
    assert resumed.state_dict() == saved.state_dict()


def test_samples_continue_where_groups_of_a_fixed_number_of_steps_were(sources: Sources) -> None:
    """The epochs of such a run are not those of the order."""
    one_lane: dict[str, Any] = {"seed": 7, "shuffle": mdsx.Shuffle(1, 16), "rank": 0, "world_size": 1}
    packed = mdsx.Loader(sources.a, 1, batching=PACK, epoch_steps=1, **one_lane)
    seen: list[int] = []
    for batch in later(packed):
        seen += ids(batch)
        state = packed.state_dict()
        if not state["groups"]["taken"] and state["position"]:
            break
    assert state["epoch"] > state["groups"]["epoch"] == 0
    plain = mdsx.Loader(sources.a, 5, **one_lane)
    with pytest.raises(mdsx.StateError, match=r"^groups\.epoch: the state lacks a valid number"):
        plain.load_state_dict({**state, "groups": {**state["groups"], "epoch": -1}})
    plain.load_state_dict(state)
    assert plain.epoch == 0
    assert sorted(seen + [number for batch in plain for number in ids(batch)]) == list(range(SIZES["a"]))


def test_a_state_of_a_mixture_without_its_components_is_read(sources: Sources, stops: dict[str, list[Stop]]) -> None:
    """Version 0.1.0 wrote such states."""
    for name in ("mixture", "mixture, schedule", "mixture of each once"):
        state = stops[f"{name}: samples"][1].state
        old = {key: value for key, value in state.items() if key != "components"}
        resumed = loader(KINDS[f"{name}: samples"], sources)
        resumed.load_state_dict(old)
        assert resumed.state_dict() == state
        with pytest.raises(mdsx.StateError, match="fingerprint"):
            loader(KINDS["mixture, other component: samples"], sources).load_state_dict(
                {**old, "phases": [[0, [2, 1]]]}
            )
