"""Detect frameworks that divide a dataset's samples among the ranks, although the dataset yields only one rank's part.

With two ranks, such a framework would train on half of the samples, without an error. A dataset cannot ask who reads
it, so `divider` looks for the frameworks' classes on the stack.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from torch.utils.data import default_collate

from mdsx.errors import UsageError
from mdsx.torch.collation import collate

_CLASSES = (  # module, class, name in messages
    ("accelerate.data_loader", "DataLoaderDispatcher", "Accelerate"),
    ("accelerate.data_loader", "IterableDatasetShard", "Accelerate"),
    ("transformers.trainer_pt_utils", "IterableDatasetShard", "Trainer"),
)
_LOADER = "StreamingDataLoader, without prepare(), and in Trainer from get_train_dataloader()"


class Divider(NamedTuple):
    """A framework that divides samples among the ranks."""

    framework: str
    fills: int = 0  # the samples in a step, if it fills up the last step with repeated ones


def divider() -> Divider | None:
    """Return the framework on this thread's stack that divides samples among the ranks, or None."""
    known = {getattr(sys.modules.get(module), cls, None): name for module, cls, name in _CLASSES}
    known.pop(None, None)
    frame = sys._getframe(1) if known else None
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
            owner = frame.f_locals["self"]
            for cls in type(owner).__mro__:
                if cls in known:
                    fills = cls.__name__ == "IterableDatasetShard" and not owner.drop_last
                    ranks = 1 if fills and owner.split_batches else getattr(owner, "num_processes", 1)
                    return Divider(known[cls], owner.batch_size * ranks if fills else 0)
        frame = frame.f_back
    return None


def check_batched_once(dataset: object) -> None:
    """Raise UsageError if a DataLoader that begins to iterate over `dataset` would collate its batches again.

    The DataLoader calls `iter(dataset)` in an object that has its collate_fn.
    """
    fetcher = sys._getframe(2).f_locals.get("self")
    if (
        getattr(fetcher, "dataset", None) is dataset
        and getattr(fetcher, "auto_collation", False)
        and getattr(fetcher, "collate_fn", None) in (default_collate, collate)
    ):
        raise UsageError(
            "both StreamingDataset and PyTorch's DataLoader have a batch_size, which makes batches of batches",
            hint="give the DataLoader batch_size=None, or use StreamingDataLoader",
        )


def gathers_tensors() -> bool:
    """Return whether an evaluation of Hugging Face's Trainer begins to iterate: it gathers the tensors of all ranks."""
    trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", ())
    frame = sys._getframe(2)  # the caller's caller
    return frame.f_code.co_name == "evaluation_loop" and isinstance(frame.f_locals.get("self"), trainer)


def uneven_shares(ranks: int) -> UsageError:
    """Return the error for an evaluation in Trainer whose ranks would get batches of different sizes."""
    return UsageError(
        f"Trainer gathers the tensors of all ranks, but the last batch cannot be divided evenly among {ranks} ranks",
        hint='give the loader uneven="repeat" and use its mask, as docs/trainers.md shows, or give Trainer an '
        "mdsx.Dataset as eval_dataset",
    )


def divided_twice(by: Divider, rank: int, world_size: int) -> UsageError:
    """Return the error for a dataset that `by` would divide again."""
    return UsageError(
        f"{by.framework} divides samples among the ranks, but this dataset yields only one rank's part: samples would "
        "be lost",
        found=f"rank {rank} of {world_size}",
        hint=f"give StreamingDataset rank=0, world_size=1; or use {_LOADER}; or an mdsx.Dataset for an evaluation",
    )


def filled_up(by: Divider, left: int) -> UsageError:
    """Return the error for the last `left` samples, less than a step, to which `by` would add repeated ones."""
    return UsageError(
        f"{by.framework} would fill up the last step with repeated samples, and count them in an evaluation too",
        found=f"{left} samples in the last step",
        expected=f"{by.fills}",
        hint="give the DataLoader drop_last=True, or leave dispatch_batches at its default, or use StreamingDataLoader",
    )


def single_samples(rank: int, world_size: int) -> UsageError:
    """Return the error for single samples in a job of several ranks, where it is unknown who divides them."""
    return UsageError(
        "single samples are read in a job of several ranks, but nothing shows who divides them among the ranks",
        found=f"rank {rank} of {world_size}",
        hint="in a loop of your own, and in Lightning, use StreamingDataLoader, or give StreamingDataset a batch_size= "
        "and PyTorch's DataLoader batch_size=None; for a framework that divides samples itself (Trainer, and "
        "Accelerate's prepare), give StreamingDataset rank=0, world_size=1; or give the rank to read",
    )
