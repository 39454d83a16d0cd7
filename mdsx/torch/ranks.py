"""Which rank this process is, and of how many."""

from __future__ import annotations

import os

import torch.distributed

from mdsx.errors import UsageError, shown


def rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return what was given, else torch.distributed's if initialised, else `RANK` and `WORLD_SIZE`, else (0, 1)."""
    if (rank is None) != (world_size is None):
        raise UsageError("rank and world_size are given together, or neither", found=f"{rank}, {world_size}")
    if rank is None or world_size is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            rank, world_size = _environment("RANK", -1), _environment("WORLD_SIZE", 1)
            if rank < 0 < world_size - 1:  # rank 0 would be a guess, and its samples come twice
                raise UsageError(
                    f"WORLD_SIZE is {world_size}, but RANK is not set",
                    hint="initialise torch.distributed before the first batch, or give rank and world_size",
                )
            rank = max(rank, 0)
    if not 0 <= rank < world_size:
        raise UsageError("rank must be below world_size", found=f"rank {rank} of {world_size}")
    return rank, world_size


def ranks_on_this_node() -> int:
    """Return torchrun's `LOCAL_WORLD_SIZE`, else 1."""
    return max(_environment("LOCAL_WORLD_SIZE", 1), 1)


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError("the environment variable is not a number", place=name, found=shown(text)) from None
