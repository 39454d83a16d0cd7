"""`mdsx.change`: what a new state has, and what is refused, with the way out."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx

SIZES = {"web": 120, "code": 80, "math": 50, "books": 30}


def length_of(number: int) -> int:
    return number % 9 + 1


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("change")
    for place, (name, size) in enumerate(SIZES.items()):
        with mdsx.Writer(root / name, {"id": "int64", "tokens": "int32[*]"}, shard_size=2000) as out:
            for number in range(size):
                out.write({"id": 1000 * place + number, "tokens": np.full(length_of(number), number, np.int32)})
    return {name: str(root / name) for name in SIZES}


def mixed(urls: dict[str, str], shares: dict[str, Any], **options: Any) -> mdsx.Mixture:
    options.setdefault("epoch_samples", 200)
    return mdsx.Mixture({name: (urls[name], share) for name, share in shares.items()}, **options)


def loader_of(mixture: mdsx.Mixture, batching: mdsx.Pack | None = None, size: int = 10, **options: Any) -> mdsx.Loader:
    shuffle = mdsx.Shuffle(2, options.pop("shuffle_block", None))
    return mdsx.Loader(mixture, size, seed=3, shuffle=shuffle, drop_last=False, batching=batching, **options)


def after(mixture: mdsx.Mixture, steps: int, batching: mdsx.Pack | None = None) -> dict[str, Any]:
    """Return the state of a run after some steps."""
    loader = loader_of(mixture, batching)
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    return loader.state_dict()


def ids(loader: mdsx.Loader, steps: int) -> list[int]:
    """Return the samples of the next steps."""
    loader.resume()
    batches = iter(loader)
    return [number for _ in range(steps) for number in next(batches)["id"].tolist()]


PACK = mdsx.Pack(16, length="tokens", window=20)
CONCAT = mdsx.Pack(16, length="tokens", window=20, kind="concat")
FRAMED = mdsx.Pack(16, length="tokens", window=20, begin=1, end=2)


def test_a_state_lists_its_components_and_what_is_gone_keeps_its_number(urls: dict[str, str]) -> None:
    old = mixed(urls, {"web": 2, "code": 1})
    state = after(old, 4)
    assert state["components"] == [[name, print, SIZES[name]] for name, print, *_ in old.components]
    new = mixed(urls, {"math": 1, "web": Fraction(1, 3)}, component_column="from")
    changed = mdsx.change(state, new)
    assert [name for name, *_ in changed["components"]] == ["web", "code", "math"]
    assert changed["phases"] == [[0, [2, 1, 0]], [40, ["1/3", 0, 1]]]
    assert changed["changed"] == 40
    assert {
        name: changed[name] for name in ("epoch", "position", "seed", "lanes", "epoch_samples", "shuffle_block")
    } == {name: state[name] for name in ("epoch", "position", "seed", "lanes", "epoch_samples", "shuffle_block")}
    fingerprints = [print for _, print, _ in changed["components"]]
    trio = mdsx.Mixture([urls["web"], urls["code"], urls["math"]])
    assert fingerprints == [component.fingerprint for component in trio.components]
    assert changed["fingerprint"] == trio.fingerprint  # of the listed components
    assert changed["consumed"]["samples"] == [*state["consumed"]["samples"], 0]
    loader = loader_of(new)
    loader.load_state_dict(changed)
    numbers = {int(number) for batch in loader for number in batch["from"]}
    assert numbers == {0, 2}  # the state's
    assert loader.stats().components.keys() == {"web", "code", "math"}
    assert loader.consumed.samples.keys() == {"web", "code", "math"}
    assert loader.consumed.samples["code"] == state["consumed"]["samples"][1]


def test_what_does_not_change_goes_on_where_it_was(urls: dict[str, str]) -> None:
    """Web has the same share of the whole in both runs: it comes at the same ticks, with the same samples."""
    state = after(mixed(urls, {"web": 1, "code": 1}), 3)
    steady = loader_of(mixed(urls, {"web": 1, "code": 1}))
    steady.load_state_dict(state)
    new = mixed(urls, {"web": 1, "math": 1})
    loader = loader_of(new)
    loader.load_state_dict(mdsx.change(state, new))
    expected, found = ids(steady, 10), ids(loader, 10)
    web = [number < 1000 for number in expected]
    assert [number for number in found if number < 1000] == [n for n, mine in zip(expected, web, strict=True) if mine]


def test_a_program_needs_no_flag_again_and_may_name_components_as_it_likes(urls: dict[str, str]) -> None:
    state = mdsx.change(after(mixed(urls, {"web": 2, "code": 1}), 4), mixed(urls, {"math": 1, "web": 1}))
    first = loader_of(mixed(urls, {"math": 1, "web": 1}))
    first.load_state_dict(state)
    ids(first, 2)
    again = first.state_dict()
    assert again["changed"] == 40
    renamed = mdsx.Mixture({"new": (urls["web"], 3), "old": (urls["code"], 0), "m": (urls["math"], 3)})
    second = loader_of(renamed)  # without epoch_samples: that of the run
    second.load_state_dict(json.loads(json.dumps(again)))
    assert ids(second, 3) == ids(first, 3)
    second.reweight({"m": 0.5})
    assert second.state_dict()["phases"][-1] == [90, [1, 0, 0.5]]  # the numbers of the state
    assert second.state_dict()["components"][0][0] == "new"


def test_states_of_fewer_samples_log_no_snapshot_of_a_mixture(
    urls: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Only a dataset that grew is read as it was. A mixture has other components."""
    old, new = (mixed(urls, shares, epoch_samples=None) for shares in ({"web": 1, "code": 1}, {"web": 1, "math": 1}))
    fresh = after(new, 1)
    loader = loader_of(new)
    for state in (mdsx.change(after(old, 1), new), fresh):
        loader.load_state_dict(state)
    assert not caplog.records


def test_a_component_that_comes_back_goes_on_where_it_was(urls: dict[str, str]) -> None:
    one, two = mixed(urls, {"web": 1, "code": 1}), mixed(urls, {"web": 1, "math": 1})
    loader = loader_of(one)
    seen = ids(loader, 4)
    other = loader_of(two)
    other.load_state_dict(mdsx.change(loader.state_dict(), two))
    ids(other, 3)
    back = loader_of(one)
    back.load_state_dict(mdsx.change(other.state_dict(), one))
    code = [number for number in [*seen, *ids(back, 6)] if 1000 <= number < 2000]
    assert len(set(code)) == len(code)


def test_a_dataset_that_grew_is_its_snapshot_and_the_part(tmp_path: Path, urls: dict[str, str]) -> None:
    def write(url: Path, numbers: range) -> None:
        with mdsx.Writer(url, {"id": "int64", "tokens": "int32[*]"}) as out:
            for number in numbers:
                out.write({"id": number, "tokens": np.zeros(1, np.int32)})

    write(tmp_path / "grows", range(60))
    grows = str(tmp_path / "grows")
    mixture = mdsx.Mixture({"web": (grows, 0.5), "code": (urls["code"], 0.5)}, epoch_samples=200)
    state = after(mixture, 3)
    write(tmp_path / "grows" / "part-00001", range(60, 80))
    snapshot = mdsx.append(grows, "part-00001").snapshot
    with pytest.raises(mdsx.StateError, match=r"web.*snapshot"):
        loader_of(mdsx.Mixture({"web": (grows, 0.5), "code": (urls["code"], 0.5)}, epoch_samples=200)).load_state_dict(
            state
        )
    new = mdsx.Mixture(
        {
            "web": (mdsx.Dataset(grows, snapshot=snapshot), Fraction(1, 2) * 60 / 80),
            "web, new": (f"{grows}/part-00001", Fraction(1, 2) * 20 / 80),
            "code": (urls["code"], 0.5),
        }
    )
    loader = loader_of(new)
    loader.load_state_dict(mdsx.change(state, new))
    rest = ids(loader, 10)
    web = [number for number in rest if number < 1000]
    assert len(set(web)) == len(web)
    assert abs(sum(number >= 60 for number in web) - len(web) / 4) <= 3


class TestInTheMiddleOfAWindow:
    @pytest.mark.parametrize("batching", [PACK, CONCAT, FRAMED], ids=["pack", "concat", "added tokens"])
    def test_what_is_removed_is_needed_and_it_says_for_how_long(
        self, urls: dict[str, str], batching: mdsx.Pack
    ) -> None:
        state = after(mixed(urls, {"web": 2, "code": 1}), 1, batching)
        assert state["groups"]["taken"] == 10
        with pytest.raises(mdsx.UsageError, match=r"'code' is still needed.*\d+ of its samples.*proportion 0"):
            mdsx.change(state, mixed(urls, {"web": 1}))
        kept = mixed(urls, {"web": 1, "code": 0, "math": 1})
        with pytest.warns(UserWarning, match=r"'code' is still read for (\d+) more groups") as caught:
            changed = mdsx.change(state, kept)
        groups = int(str(caught[0].message).split(" more groups")[0].split()[-1])
        assert changed["phases"][-1][0] == 40  # the window's end
        one = loader_of(kept, batching, size=1)
        one.load_state_dict(changed)
        batches = iter(one)
        for _ in range(groups - 1):
            next(batches)
        assert one.state_dict()["groups"]["taken"]
        without = mixed(urls, {"web": 1, "math": 1})
        with pytest.raises(mdsx.StateError, match=r"still reads the component 'code'.*proportion 0"):
            loader_of(without, batching).load_state_dict(one.state_dict())
        next(batches)
        state = one.state_dict()
        assert not state["groups"]["taken"]
        loader_of(without, batching).load_state_dict(state)

    def test_a_damaged_window_has_no_number_of_groups(self, urls: dict[str, str]) -> None:
        state = after(mixed(urls, {"web": 2, "code": 1}), 1, PACK)
        state["groups"]["window"] = 99
        with pytest.warns(UserWarning, match="'code' is still read for this window"):
            mdsx.change(state, mixed(urls, {"web": 1, "code": 0, "math": 1}))

    def test_other_lengths_of_a_component_that_stays_are_refused(self, urls: dict[str, str]) -> None:
        state = after(mixed(urls, {"web": 2, "code": 1}), 1, PACK)
        kept = mixed(urls, {"web": 1, "code": 1, "math": 1})
        changed = mdsx.change(state, kept)
        with pytest.raises(mdsx.StateError, match=r"groups\.lengths"):
            loader_of(kept, mdsx.Pack(16, length=np.ones(250, np.int64), window=20)).load_state_dict(changed)


class TestExclusion:
    def test_samples_are_left_out_from_the_next_batch_on(self, urls: dict[str, str]) -> None:
        plain = mixed(urls, {"web": 1, "code": 1})
        loader = loader_of(plain)
        seen = ids(loader, 3)
        state = loader.state_dict()
        coming = ids(loader, 17)
        removed = [number for number in coming[::4] if number < 1000]
        changed = mdsx.change(state, exclude={"web": removed})
        assert changed["exclude"][0][:3] == [0, 30, len(removed)]
        after = mixed(urls, {"web": 1, "code": 1}, exclude={"web": removed})
        loader = loader_of(after)
        loader.load_state_dict(changed)
        sizes = [len(batch["id"]) for batch in loader]
        assert sum(sizes) == len([number for number in coming if number not in removed])
        assert loader.stats().samples == sum(sizes)
        assert loader.consumed.samples == {
            "web": sum(number < 1000 for number in [*seen, *(n for n in coming if n not in removed)]),
            "code": sum(number >= 1000 for number in [*seen, *coming]),
        }
        loader = loader_of(after)
        loader.load_state_dict(changed)
        assert ids(loader, 17) == [number for number in coming if number not in removed]

    def test_a_run_may_begin_without_some_samples(self, urls: dict[str, str]) -> None:
        for batching in (None, PACK):
            loader = loader_of(mixed(urls, {"web": 1, "code": 1}, exclude={"web": range(100)}), batching)
            found = {number for batch in loader for number in np.concatenate([np.ravel(ids) for ids in batch["id"]])}
            assert {number for number in found if number < 1000} <= set(range(100, 120))

    @pytest.mark.parametrize(
        "options", [{"transform": dict}, {"batching": PACK, "epoch_steps": 3}], ids=["samples", "groups"]
    )
    def test_a_run_of_which_nothing_is_left_says_so(self, urls: dict[str, str], options: dict[str, Any]) -> None:
        nothing = mixed(urls, {"web": 1, "code": 1}, exclude={name: range(SIZES[name]) for name in ("web", "code")})
        with pytest.raises(mdsx.UsageError, match="every sample of an epoch is excluded"):
            next(iter(loader_of(nothing, **options)))

    def test_a_removed_component_is_not_taken_for_a_new_one_of_its_name(self, urls: dict[str, str]) -> None:
        web, code, math = (urls[name] for name in ("web", "code", "math"))
        state = after(mdsx.Mixture({"web": (web, 2), "code": (code, 1)}, epoch_samples=200), 1)
        state = mdsx.change(state, mdsx.Mixture({"code": (code, 1), "web": (math, 1)}, epoch_samples=200))
        assert [name for name, *_ in state["components"]] == ["web", "code", "web"]
        assert [number for number, *_ in mdsx.change(state, exclude={"web": [5]})["exclude"]] == [2]

    def test_every_rank_must_give_the_list(self, urls: dict[str, str]) -> None:
        shares = {"web": 1, "code": 1}
        state = mdsx.change(after(mixed(urls, shares), 3), exclude={"web": [5, 3]})
        for wrong in ({}, {"exclude": {"web": [3, 5]}}, {"exclude": {"web": [5]}}, {"exclude": {"web": [5, 3, 4]}}):
            with pytest.raises(mdsx.StateError, match=r"exclude, component 'web'.*2 numbers.*same numbers in the same"):
                loader_of(mixed(urls, shares, **wrong)).load_state_dict(state)
        with pytest.raises(mdsx.StateError, match=r"excludes samples that the run does not.*mdsx\.change"):
            loader_of(mixed(urls, shares, exclude={"code": [1], "web": [5, 3]})).load_state_dict(state)
        more = mdsx.change(state, exclude={"web": [5, 3, 4]})
        assert [each[1:3] for each in more["exclude"]] == [[30, 3]]
        loader_of(mixed(urls, shares, exclude={"web": [5, 3, 4]})).load_state_dict(more)
        with pytest.raises(mdsx.UsageError, match=r"does not begin with the numbers.*append"):
            mdsx.change(state, exclude={"web": [3, 5, 4]})

    @pytest.mark.parametrize(
        ("exclude", "message"),
        [
            ({"news": [1]}, "no such component.*web, code"),
            ({"web": [120]}, "does not exist.*0 to 119"),
            ({"web": [-1]}, "does not exist"),
            ({"web": [1, 1]}, "excluded twice"),
            ({"web": [0.5]}, "numbers of samples"),
            ([1], "a mapping from components"),
        ],
    )
    def test_a_wrong_list_is_refused(self, urls: dict[str, str], exclude: Any, message: str) -> None:
        state = after(mixed(urls, {"web": 1, "code": 1}), 1)
        with pytest.raises(mdsx.UsageError, match=message):
            mdsx.change(state, exclude=exclude)
        with pytest.raises(mdsx.UsageError, match=message):
            mixed(urls, {"web": 1, "code": 1}, exclude=exclude)

    def test_only_mixtures_with_proportions_leave_samples_out(self, urls: dict[str, str]) -> None:
        with pytest.raises(mdsx.UsageError, match=r"requires a mixture with proportions.*select"):
            mdsx.Mixture([urls["web"]], exclude={"0": [1]})


class TestRefusals:
    def test_a_mixture_without_proportions_cannot_change(self, urls: dict[str, str]) -> None:
        plain = mdsx.Mixture({"web": urls["web"], "code": urls["code"]})
        with pytest.raises(mdsx.UsageError, match=r"only a mixture with proportions can change.*finish the epoch"):
            mdsx.change(after(plain, 1), mixed(urls, {"web": 1}))
        with pytest.raises(mdsx.UsageError, match=r"only a mixture with proportions can change"):
            mdsx.change(after(mixed(urls, {"web": 1}), 1), plain)

    def test_lengths_of_epochs_and_runs_do_not_change(self, urls: dict[str, str]) -> None:
        state = after(mixed(urls, {"web": 1}), 1)
        with pytest.raises(mdsx.UsageError, match=r"epoch_samples cannot change within a run.*give"):
            mdsx.change(state, mixed(urls, {"web": 1}, epoch_samples=300))
        with pytest.raises(mdsx.UsageError, match="run cannot change within a run"):
            mdsx.change(state, mixed(urls, {"web": 1}, run=10))

    @pytest.mark.parametrize(
        ("shares", "message"),
        [
            ({"math": 1}, r"still reads|lacks|components|proportions now"),
            ({"web": 1, "math": 2}, r"other proportions now.*mdsx\.change"),
            ({"web": 1, "math": 1, "books": 1}, r"no component .* 'books'.*mdsx\.change"),
            ({"web": 1, "code": 1}, r"proportions now"),
        ],
    )
    def test_a_mixture_that_does_not_fit_is_refused(
        self, urls: dict[str, str], shares: dict[str, Any], message: str
    ) -> None:
        state = mdsx.change(after(mixed(urls, {"web": 2, "code": 1}), 4), mixed(urls, {"math": 1, "web": 1}))
        with pytest.raises(mdsx.StateError, match=message):
            loader_of(mixed(urls, shares)).load_state_dict(state)

    @pytest.mark.parametrize(
        ("damage", "place"),
        [
            ({"position": 200}, "position"),  # of 200 positions
            ({"position": 10**9}, "position"),
            ({"components": [["web", "\ud800", 120]]}, "components"),
            ({"components": [["\ud800", "0" * 32, 120]]}, "components"),
        ],
    )
    def test_a_damaged_state_is_refused(self, urls: dict[str, str], damage: dict[str, Any], place: str) -> None:
        state = after(mixed(urls, {"web": 1}), 1, PACK)
        assert state["groups"]["taken"]
        with pytest.raises(mdsx.StateError, match=f"^{place}: "):
            mdsx.change({**state, **damage}, mixed(urls, {"web": 1, "code": 1}))

    def test_what_is_not_a_state_of_a_run(self, urls: dict[str, str]) -> None:
        mixture = mixed(urls, {"web": 1})
        state = after(mixture, 1)
        for wrong, message in (
            ([], "state_dict"),
            ({**state, "components": 3}, "components"),
            ({**state, "phases": [[0, [1, 2]]]}, "phases"),
            ({**state, "epoch_samples": None}, "epoch_samples"),
            ({**state, "worker": {}}, "one worker"),
        ):
            with pytest.raises((mdsx.StateError, mdsx.UsageError), match=message):
                mdsx.change(wrong, mixture)  # type: ignore[arg-type]
        with pytest.raises(mdsx.UsageError, match="nothing to change"):
            mdsx.change(state)
        changed = mdsx.change(state, mixed(urls, {"code": 1}))
        for name, value in (("changed", -1), ("components", [["a", "b"]]), ("fingerprint", "0" * 32), ("exclude", [3])):
            with pytest.raises(mdsx.StateError):
                loader_of(mixed(urls, {"code": 1})).load_state_dict({**changed, name: value})


class TestEarlierVersions:
    def test_components_may_be_pairs(self, urls: dict[str, str]) -> None:
        mixture = mixed(urls, {"web": 2, "code": 1})
        state = after(mixture, 4)
        pairs = {**state, "components": [each[:2] for each in state["components"]]}
        loader_of(mixture).load_state_dict(pairs)
        new = mixed(urls, {"web": 1, "math": 1})
        changed = mdsx.change(pairs, new)
        assert changed["components"][1] == [*state["components"][1][:2], None]
        loader = loader_of(new)
        loader.load_state_dict(changed)
        other = loader_of(new)
        other.load_state_dict(mdsx.change(state, new))
        assert ids(loader, 5) == ids(other, 5)

    def test_a_state_that_lists_none_says_how_to_go_on(self, urls: dict[str, str]) -> None:
        mixture = mixed(urls, {"web": 2, "code": 1})
        state = after(mixture, 4)
        del state["components"]
        with pytest.raises(mdsx.UsageError, match=r"does not list its components.*load it into a loader"):
            mdsx.change(state, mixed(urls, {"web": 1, "math": 1}))
        loader = loader_of(mixture)
        loader.load_state_dict(state)
        mdsx.change(loader.state_dict(), mixed(urls, {"web": 1, "math": 1}))
        assert mdsx.change(state, mixed(urls, {"web": 1, "code": 1}))["changed"] == 40  # the same components
