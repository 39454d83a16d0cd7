"""Frameworks that divide what they read of a dataset among the ranks, although it has only one rank's part.

Such a framework would train on half of the samples on two ranks, without an error. A dataset cannot ask its reader, so
`divider` looks for the frameworks' classes on the stack.
"""

from __future__ import annotations

import sys

from mdsx.errors import UsageError

_CLASSES = (  # module, class, name in messages
    ("accelerate.data_loader", "DataLoaderDispatcher", "Accelerate"),
    ("accelerate.data_loader", "IterableDatasetShard", "Accelerate"),
    ("transformers.trainer_pt_utils", "IterableDatasetShard", "Trainer"),
)
_LOADER = "StreamingDataLoader, as it is: without prepare(), and in Trainer from get_train_dataloader()"


def divider() -> str | None:
    """Return the framework on this thread's stack that divides what it reads among the ranks, if there is one."""
    known = {getattr(sys.modules.get(module), cls, None): name for module, cls, name in _CLASSES}
    known.pop(None, None)
    frame = sys._getframe(1) if known else None
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
            for cls in type(frame.f_locals["self"]).__mro__:
                if cls in known:
                    return known[cls]
        frame = frame.f_back
    return None


def divided_twice(framework: str, rank: int, world_size: int) -> UsageError:
    """Return the error of a dataset that `framework` divides again."""
    return UsageError(
        f"{framework} divides what it reads among the ranks, but this dataset has only one rank's part: samples would "
        "be lost",
        found=f"rank {rank} of {world_size}",
        hint=f"give StreamingDataset rank=0, world_size=1; or use {_LOADER}",
    )


def single_samples(rank: int, world_size: int) -> UsageError:
    """Return the error of single samples in a job of several ranks: whether they are divided again is not known."""
    return UsageError(
        "single samples are read in a job of several ranks, and nothing says who divides them among the ranks",
        found=f"rank {rank} of {world_size}",
        hint="in a loop of your own, and in Lightning, use StreamingDataLoader, or give StreamingDataset a batch_size= "
        "and PyTorch's DataLoader batch_size=None; for a framework that divides samples itself (Trainer, and "
        "Accelerate's prepare), give StreamingDataset rank=0, world_size=1; or give the rank that you mean",
    )
