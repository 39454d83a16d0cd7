"""Which part of each global batch a process reads: its rank, given or found, and which ranks get the same samples."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import find_local_ranks, find_ranks, find_ranks_per_node
from mdsx.errors import UsageError, shown
from mdsx.order import MAX_WORLD_SIZE, integer


class Mesh(Protocol):
    """A `torch.distributed.device_mesh.DeviceMesh`."""

    @property
    def mesh(self) -> Any: ...
    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None: ...


class Ranks:
    """This process's rank, given or looked up on each access, and its part of the data."""

    def __init__(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        replication: int | tuple[Mesh, str | Sequence[str]] = 1,
        ranks_per_node: int | None = None,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise UsageError("rank and world_size are given together, or neither", found=f"{rank}, {world_size}")
        self._given = None if rank is None or world_size is None else (rank, world_size)
        self.given = self._given is not None  # by the user; a copy may be given the ranks that this process found
        self._groups = _groups(replication)
        self._node: int | None = None
        if ranks_per_node is not None:
            self._node = integer(ranks_per_node, "ranks_per_node", 1, MAX_WORLD_SIZE)
        if self._given is not None or not isinstance(self._groups, int):
            _ = self.part  # which checks it

    def __getstate__(self) -> dict[str, Any]:
        """Include the ranks for worker processes if only torch.distributed knows them; the environment is the same."""
        return {**self.__dict__, "_given": self.process if _group() is not None else self._given}

    @property
    def process(self) -> tuple[int, int]:
        """Return (rank, world size), counting processes.

        Raises:
            UsageError: They are invalid, or only one of the two is known.
        """
        rank, world_size = self._given or _found()
        if not 0 <= rank < world_size:
            raise UsageError("rank must be below world_size", found=f"rank {rank} of {world_size}")
        return rank, world_size

    @property
    def part(self) -> tuple[int, int]:
        """Return (rank, world size), counting only ranks with different samples."""
        rank, world_size = self.process
        groups = self._groups
        if isinstance(groups, int):
            if world_size % groups:
                raise UsageError(
                    "replication must divide the world size", found=groups, expected=f"a divisor of {world_size}"
                )
            return rank // groups, world_size // groups
        if len(groups) != world_size:
            raise UsageError(
                "the mesh in replication= lacks some ranks",
                found=f"{len(groups)} of {world_size}",
                hint="give the whole mesh, not a part of it",
            )
        return int(groups[rank]), int(groups.max()) + 1

    def with_node(self, ranks_per_node: int | None) -> Ranks:
        """Return the same ranks with this number on each node (None: unchanged)."""
        if ranks_per_node is None:
            return self
        found = copy(self)
        found._node = integer(ranks_per_node, "ranks_per_node", 1, MAX_WORLD_SIZE)
        return found

    @property
    def node(self) -> int | None:
        """Return how many successive parts of the data each node reads, as given or from the launcher. None if unknown,
        or if the nodes differ."""
        if self._node is not None:
            return self._node
        rank, world_size = self.process
        processes = find_ranks_per_node(os.environ, rank, world_size)
        if processes is None:
            return None
        groups = self._groups
        if isinstance(groups, int):
            return max(processes // groups, 1) if processes % groups == 0 or groups % processes == 0 else None
        parts = np.sort(groups.reshape(-1, processes), axis=1)  # one row for each node
        lows, node = parts[:, 0], int(parts[0, -1] - parts[0, 0]) + 1
        successive = (np.diff(parts, axis=1) <= 1).all() and (parts[:, -1] - lows == node - 1).all()
        return node if successive and not (lows % node).any() else None

    @property
    def store(self) -> Any:
        """Return the `torch.distributed.Store` that all these processes share, or None."""
        world_size, distributed = self.process[1], _group()
        if distributed is None or world_size == 1 or distributed.get_world_size() != world_size:
            return None
        find = getattr(distributed.group.WORLD, "get_group_store", None)  # PyTorch 2.4 lacks it
        return None if find is None else find()

    @property
    def here(self) -> int:
        """Return how many parts of the data are known to be read on this node."""
        rank, world_size = self.process
        local_rank, processes = find_local_ranks(os.environ)
        first = max(rank - (rank % processes if local_rank is None else local_rank), 0)
        ranks = np.arange(first, min(first + processes, world_size))
        groups = self._groups
        return len(np.unique(ranks // groups if isinstance(groups, int) else groups[ranks]))


def _group() -> Any:
    """Return torch.distributed if a process group was initialised, so that it is imported already; else None."""
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed and distributed.is_available() and distributed.is_initialized() else None


def _found() -> tuple[int, int]:
    if (distributed := _group()) is not None:
        return distributed.get_rank(), distributed.get_world_size()
    return find_ranks(os.environ) or (0, 1)


def _groups(replication: Any) -> int | NDArray[np.int64]:
    """Return the size of groups of successive ranks; or, from a mesh, the group of each rank."""
    if isinstance(replication, int) and not isinstance(replication, bool) and replication > 0:
        return replication
    wanted = 'a positive integer, or a mesh and the names of its dimensions, as in (mesh, ("pp", "tp"))'
    if not isinstance(replication, tuple) or len(replication) != 2:
        raise UsageError("replication is invalid", found=shown(replication), expected=wanted)
    mesh, dimensions = replication
    names = getattr(mesh, "mesh_dim_names", None)
    if not names:
        raise UsageError("replication= needs a mesh with named dimensions", found=shown(mesh), expected=wanted)
    dimensions = (dimensions,) if isinstance(dimensions, str) else tuple(dimensions)
    if len(set(dimensions)) != len(dimensions) or not set(dimensions) <= set(names):
        raise UsageError(
            "the mesh in replication= has no such dimensions", found=shown(dimensions), expected=f"some of {names}"
        )
    table = np.array(mesh.mesh.tolist())
    axes = [names.index(name) for name in dimensions]
    same = math.prod(table.shape[axis] for axis in axes)
    rows = np.moveaxis(table, axes, range(-len(axes), 0)).reshape(-1, same)  # each row: ranks with the same samples
    if not np.array_equal(np.sort(rows, axis=None), np.arange(rows.size)):
        raise UsageError(
            "the mesh in replication= lacks some ranks", found=shown(table.tolist()), hint="give the whole mesh"
        )
    groups = np.empty(rows.size, np.int64)
    groups[rows] = np.arange(len(rows))[:, None]
    return groups
