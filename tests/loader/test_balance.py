"""Pack(balance=): a node's rows are dealt to its ranks by cost, and nothing else changes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import mdsx

LENGTHS = [number * 37 % 900 + number % 3 for number in range(900)]
BALANCE = (48, 1)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("balance") / "data"
    with mdsx.Writer(path, {"id": "int64", "tokens": "int32[*]"}, shard_size=40_000) as out:
        for number, length in enumerate(LENGTHS):
            out.write({"id": number, "tokens": np.full(length, number, np.int32)})
    return str(path)


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def loaders(url: str, world: int, rows: int, node: int | None, **options: Any) -> list[mdsx.Loader]:
    """Return the loaders of all ranks. `options`: of the packing."""
    pack: dict[str, Any] = {"capacity": 1024, "length": "tokens", "window": 32, **options}
    batching = mdsx.Pack(pack.pop("capacity"), **pack)
    return [
        mdsx.Loader(
            url, rows, seed=3, batching=batching, rank=rank, world_size=world, ranks_per_node=node, drop_last=False
        )
        for rank in range(world)
    ]


def rows_of(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the samples of each row."""
    return [tuple(map(int, row)) for row in batch["id"]]


def cost(batch: dict[str, Any]) -> int:
    return sum(BALANCE[0] * LENGTHS[number] + LENGTHS[number] ** 2 for row in rows_of(batch) for number in row)


@pytest.mark.parametrize(("world", "node", "over"), [(8, 4, "node"), (8, 2, "node"), (6, 3, "node"), (4, 4, "job")])
def test_nodes_steps_and_states_stay_the_same(url: str, world: int, node: int, over: Any) -> None:
    plain = loaders(url, world, 3, node)
    balanced = loaders(url, world, 3, node, balance=BALANCE, balance_over=over)
    steps, better = 0, 0
    for before, after in zip(zip(*plain, strict=True), zip(*balanced, strict=True), strict=True):
        for first in range(0, world, node):
            ranks = range(first, first + node)
            ours, others = ([row for rank in ranks for row in rows_of(each[rank])] for each in (before, after))
            assert sorted(ours) == sorted(others)
        assert [len(rows_of(batch)) for batch in before] == [len(rows_of(batch)) for batch in after]
        assert len({batch["global_tokens"] for batch in (*before, *after)}) == 1
        assert {str(loader.state_dict()) for loader in (*plain, *balanced)} == {str(plain[0].state_dict())}
        steps, better = steps + 1, better + (max(map(cost, after)) < max(map(cost, before)))
    assert steps > 10
    assert better > steps / 2


def test_a_run_continues_with_another_balance_and_another_node(url: str) -> None:
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for world, node, balance in ((8, 4, BALANCE), (6, 2, BALANCE), (4, 4, None), (2, 1, (1, 0)), (4, 4, BALANCE)):
        ranks = loaders(url, world, 2, node, balance=balance)
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in ranks]
        for _ in range(3):
            seen += [number for each in iterators for row in rows_of(next(each)) for number in row]
        states = [loader.state_dict() for loader in ranks]
        assert all(each == states[0] for each in states)
        state = states[0]
    (last,) = loaders(url, 1, 1, None)
    assert state is not None
    last.load_state_dict(state)
    seen += [number for batch in last for row in rows_of(batch) for number in row]
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_the_launcher_says_how_many_ranks_a_node_has(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = loaders(url, 4, 2, 2, balance=BALANCE)[1]
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setitem(os.environ, name, value)
    batching = mdsx.Pack(1024, length="tokens", window=32, balance=BALANCE)
    found = mdsx.Loader(url, 2, seed=3, batching=batching, drop_last=False)
    assert list(map(rows_of, found)) == list(map(rows_of, given))
    assert found.stats().order_hash == given.stats().order_hash


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (None, r"the number of ranks per node is unknown.*; give ranks_per_node=.*balance_over='job'"),
        (3, r"ranks_per_node must divide the number of ranks.*expected a divisor of 4, found 3"),
    ],
)
def test_a_node_that_is_not_known_or_does_not_fit_is_an_error(url: str, node: int | None, says: str) -> None:
    with pytest.raises(mdsx.UsageError, match=says):
        next(iter(loaders(url, 4, 2, node, balance=BALANCE)[0]))
    assert next(iter(loaders(url, 4, 2, node)[0]))  # without balance, nobody asks
    assert next(iter(loaders(url, 4, 2, node, balance=BALANCE, balance_over="job")[0]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"balance": (1.5, 1)}, r"balance\[0\] must be an integer"),
        ({"balance": (1, 2**50)}, r"a row of 1024 values could cost 2\^63"),
        ({"balance_over": "rack"}, "balance_over must be 'node' or 'job'"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(mdsx.UsageError, match=says):
        mdsx.Pack(1024, length="tokens", **options)


def test_a_node_of_no_ranks_is_refused(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="ranks_per_node is out of range"):
        mdsx.Loader(url, 2, ranks_per_node=0)
