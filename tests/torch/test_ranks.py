"""Which part of the data a process reads: ranks as given, of torch.distributed or of the launcher, and replication."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.loader import Ranks
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.fault_proxy import Exchange, Proxy, Rule


class Mesh:
    """What replication= uses of a DeviceMesh; a real one needs all its processes (see test_killed_processes.py)."""

    def __init__(self, table: Any, *names: str) -> None:
        self.mesh = torch.as_tensor(table)
        self.mesh_dim_names = names or None


PP_DP_TP = Mesh(np.arange(8).reshape(2, 2, 2), "pp", "dp", "tp")


def parts(world_size: int, replication: Any) -> list[int]:
    """Return each process's part of the data."""
    ranks = [Ranks(rank, world_size, replication) for rank in range(world_size)]
    found = [each.part for each in ranks]
    assert {of for _, of in found} == {len({part for part, _ in found})}
    return [part for part, _ in found]


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("replication", "expected"),
    [
        (1, [0, 1, 2, 3, 4, 5, 6, 7]),
        (2, [0, 0, 1, 1, 2, 2, 3, 3]),
        (8, [0] * 8),
        ((PP_DP_TP, "tp"), [0, 0, 1, 1, 2, 2, 3, 3]),
        ((PP_DP_TP, "pp"), [0, 1, 2, 3, 0, 1, 2, 3]),
        ((PP_DP_TP, ("pp", "tp")), [0, 0, 1, 1, 0, 0, 1, 1]),
        ((PP_DP_TP, ["tp", "pp"]), [0, 0, 1, 1, 0, 0, 1, 1]),
        ((PP_DP_TP, ()), [0, 1, 2, 3, 4, 5, 6, 7]),
        ((PP_DP_TP, ("pp", "dp", "tp")), [0] * 8),
        ((Mesh([[7, 0], [1, 6], [2, 5], [3, 4]], "dp", "tp"), "tp"), [0, 1, 2, 3, 3, 2, 1, 0]),
    ],
)
def test_the_ranks_of_a_group_read_the_same_part(replication: Any, expected: list[int]) -> None:
    assert parts(8, replication) == expected


@pytest.mark.parametrize(
    ("replication", "message"),
    [
        (3, r"replication must divide the world size \(expected a divisor of 8, found 3\)"),
        (16, "expected a divisor of 8"),
        (0, r"replication is invalid \(expected a positive integer, or a mesh .*found 0\)"),
        (-1, "found -1"),
        (True, "found True"),
        (2.0, r"found 2\.0"),
        ("tp", "found 'tp'"),
        (None, "found None"),
        (PP_DP_TP, r"expected .*as in \(mesh, \(\"pp\", \"tp\"\)\)"),
        ((2, "tp"), "needs a mesh with named dimensions"),
        ((Mesh([0, 1]), "tp"), "needs a mesh with named dimensions"),
        ((PP_DP_TP, "cp"), r"no such dimensions \(expected some of \('pp', 'dp', 'tp'\), found \('cp',\)\)"),
        ((PP_DP_TP, ("tp", "tp")), "no such dimensions"),
        ((Mesh([4, 5], "tp"), "tp"), r"lacks some ranks \(found \[4, 5\]\); give the whole mesh"),
        ((Mesh([[0, 1], [2, 3]], "dp", "tp"), "tp"), r"lacks some ranks \(found 4 of 8\); give the whole mesh"),
    ],
)
def test_a_wrong_replication_raises(replication: Any, message: str, local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        StreamingDataset(local_url, rank=1, world_size=8, replication=replication)


def test_an_unknown_argument_is_a_type_error(local_url: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'replicas'"):
        StreamingDataset(local_url, replicas=2)  # type: ignore[call-arg]


def test_replication_applies_to_the_launchers_ranks(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.loads(pickle.dumps(StreamingDataset(local_url, replication=4)))
    monkeypatch.setenv("SLURM_PROCID", "5")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    given = StreamingDataset(local_url, rank=1, world_size=2)
    assert [batch["id"].tolist() for batch in StreamingDataLoader(data, 50)] == [
        batch["id"].tolist() for batch in StreamingDataLoader(given, 50)
    ]


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({}, {}, 1),
        ({}, {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}, 8),
        ({"replication": 4}, {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}, 2),
        ({"replication": 16}, {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}, 1),
        ({"rank": 3, "world_size": 4}, {"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"rank": 1, "world_size": 2}, {"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "8"}, 2),
        ({"rank": 5, "world_size": 8, "replication": (PP_DP_TP, "pp")}, {"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"rank": 5, "world_size": 8, "replication": (PP_DP_TP, ("pp", "tp"))}, {"LOCAL_WORLD_SIZE": "4"}, 2),
        ({"rank": 5, "world_size": 8, "replication": (PP_DP_TP, ("dp", "tp"))}, {"LOCAL_WORLD_SIZE": "8"}, 2),
    ],
)
def test_replicas_on_a_node_count_once(
    given: dict[str, Any], environ: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setitem(os.environ, name, value)
    assert Ranks(**given).here == expected


NODE = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({}, {}, 1),
        ({"rank": 1, "world_size": 2}, {}, None),
        ({"rank": 1, "world_size": 2, "ranks_per_node": 2}, NODE, 2),
        ({}, NODE, 4),
        ({"rank": 5, "world_size": 8}, NODE, 4),
        ({"replication": 2}, NODE, 2),
        ({"replication": 8}, NODE, 1),
        ({"replication": 1, "ranks_per_node": 8}, NODE, 8),
        ({"replication": (PP_DP_TP, "tp")}, NODE, 2),
        ({"replication": (PP_DP_TP, "pp")}, NODE, 4),
        ({"replication": (PP_DP_TP, "dp")}, NODE, 2),
        ({"replication": (Mesh([[7, 0], [1, 6], [2, 5], [3, 4]], "dp", "tp"), "tp")}, NODE, 4),
        ({"replication": (Mesh([[0, 4], [1, 2], [3, 5], [6, 7]], "dp", "tp"), "tp")}, NODE, None),
    ],
)
def test_a_node_has_the_ranks_that_read_different_samples(
    given: dict[str, Any], environ: dict[str, str], expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setitem(os.environ, name, value)
    assert Ranks(**given).node == expected


def test_replicas_download_a_shard_once(remote_url: str, proxy: Proxy, tmp_path: Path) -> None:
    """Each has the cache as another process has it: by its directory alone."""
    downloads: Counter[str] = Counter()

    def count(exchange: Exchange) -> bool:
        downloads[exchange.key] += not exchange.range
        return False

    proxy.rules.append(Rule(lambda exchange: None, key="*/shard.*", when=count))
    data = [
        StreamingDataset(remote_url, cache=str(tmp_path), rank=rank, world_size=4, replication=4) for rank in range(4)
    ]
    for batches in zip(*(StreamingDataLoader(each, 59) for each in data), strict=True):
        assert all(batch["id"].equal(batches[0]["id"]) for batch in batches)
    assert len(downloads) > 15
    assert set(downloads.values()) == {1}
