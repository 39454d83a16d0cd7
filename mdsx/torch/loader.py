"""StreamingDataLoader: the batches of a StreamingDataset, made in threads or worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

# NumPy imports this on first use. Import it before workers are forked: a worker may garbage-collect inherited loaders
# during an import, and break it.
import numpy.ma  # noqa: F401
import torch

from mdsx.base.mosaicml import STREAMING_DATA_LOADER, explain
from mdsx.errors import UsageError
from mdsx.loader import Ahead, BatchLoader, Collate, OnError, Uneven, Workforce, checked_batching, first_batching
from mdsx.stream import Batching, Plan
from mdsx.torch.carriers import carrier, checked_device
from mdsx.torch.dataset import StreamingDataset
from mdsx.torch.dividing import gathers_tensors, uneven_shares
from mdsx.torch.gpu_pictures import check_gpu
from mdsx.torch.worker import draw_seed, setup_worker


class StreamingDataLoader(BatchLoader):
    """The batches of a `StreamingDataset`, epoch by epoch: one `for` is one epoch, or the rest of it after a resume.

        loader = StreamingDataLoader(StreamingDataset(url, seed=7), batch_size=32)
        while loader.epoch < epochs:
            for batch in loader:
                ...

    This loop is correct after a resume, after an error, and when it is run again. A batch is a dict of columns: tensors
    [n, ...] for columns of a fixed size, lists of n values for the others. With `transform` or `collate_fn`, a batch is
    what `collate_fn` returns for a list of samples.

    `next()` raises an exception, such as one of `transform`, at the batch where it occurred. The position does not
    advance: `next()` on the same iterator and a new `for` both continue with that batch. After `break`, Ctrl-C or an
    exception in the body of the loop, the next `for` reads the next epoch, with a warning; call `resume()` before it to
    read the rest of the interrupted epoch. Without shuffling, it reads the same epoch again.

    A copy of a loader, also by pickle, is independent of it and at the same position.

    Args:
        dataset: What to read.
        batch_size: Samples, or packed rows, per rank. The global batch is this times the world size. Do not give it
            with `mdsx.MaxTokens` and `mdsx.Buckets`.
        global_batch_size: Samples or rows in a step over all ranks, instead of `batch_size`. It need not be a multiple
            of the world size: the steps are the same on 56 ranks as on 64.
        micro_batch: The samples or rows in a micro-batch, with a `global_batch_size` n, here or in `mdsx.Buckets`. In
            each step, every rank gets `ceil(ceil(n / ranks) / micro_batch)` micro-batches, one from each `next()`.
            Packed rows are filled up with empty ones. A state records the beginning of a step until its last
            micro-batch was returned.
        batching: `mdsx.Pad`, `mdsx.MaxTokens`, `mdsx.Pack` or `mdsx.Buckets`: padded, length-bounded or packed batches,
            or batches of one shape, see docs/batches.md. A transform is applied to each sample before it is packed.
        plan: An `mdsx.Plan`: proportions, batching and step sizes, phase by phase. The other arguments apply where the
            plan says nothing. See docs/pretraining.md.
        ranks_per_node: How many successive ranks a node has, for `balance` of `mdsx.Pack`, not counting replicas. It
            must divide the number of ranks. The default comes from the launcher, if all nodes are alike.
        epoch_steps: The number of batches of an epoch, with `batching`. The groups of samples then continue from one
            epoch into the next, and none is left out.
        drop_last: Whether to leave out samples that do not fill the epoch's last batch. Otherwise they are split over
            the ranks as a shorter batch.
        uneven: What ranks get of a last batch that cannot be divided evenly. "empty": shares of different sizes; a rank
            without samples gets a batch of 0 samples with the same structure. "repeat": batches of one size on all
            ranks, filled up with repeated samples. Every batch then has a mask, bool [n], which is False for repeated
            samples: the key "valid", or if the batch is not a dict, the second of a pair (batch, mask).
        collate_fn: A function from a list of samples to a batch. The default is `mdsx.torch.collate` if the dataset has
            a transform.
        on_error: "skip" leaves out samples that are damaged, or for which the transform raises. Each is logged (by the
            logger "mdsx") and counted in `stats().skipped`. Positions count skipped samples, so ranks keep equal
            numbers of batches. If no sample of a batch is left, `uneven` decides. Errors of `collate_fn` and of storage
            are raised.
        max_skipped: With on_error="skip", the share of samples that may fail, 0 to 1. `next()` raises a SkippedError
            once more than this share was left out, of the samples read so far on this rank or of 1,000, whichever is
            more. The counts are those of `stats()`: a resumed program counts from 0.
        device: The device to move batches to, such as "cuda" or "cuda:1". "cuda" is the current device of the thread
            that begins an iteration. A thread pins each batch and copies it on its own stream, one ahead of the loop;
            the current stream of the thread that calls `next()` waits for the copy. Tensors, and objects with a method
            `to(device)`, move, also inside dicts, lists, tuples and named tuples; other values stay. See
            docs/training.md.
        pin_memory: Whether a thread copies tensors to pinned memory, one batch ahead. `device="cuda"` does so anyway.
        progress: Whether to show one line with the epoch's progress and the statistics of the last ten seconds, on
            stderr of rank 0, if that is a terminal or a notebook.
        num_threads: How many threads prepare batches. More than one helps if the transform is slow and releases the
            GIL, as image decoders do.
        num_workers: n > 0 prepares batches in n processes instead, which helps if the transform is slow and holds the
            GIL. The samples in a batch stay the same. The following arguments are those of PyTorch's `DataLoader`, for
            n > 0.
        prefetch_factor: How many batches, or groups of up to 16 small batches, each worker prepares ahead.
        persistent_workers: Whether workers stay for the next epoch.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context of `multiprocessing`.
        worker_init_fn: Called in each worker with its number.
        timeout: Seconds to wait for a batch from a worker; 0 waits forever.

    Raises:
        UsageError: An argument is invalid or differs from the dataset's, or the device does not exist.
    """

    @explain("StreamingDataLoader", STREAMING_DATA_LOADER)
    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int | None = None,
        *,
        batching: Batching | None = None,
        global_batch_size: int | None = None,
        micro_batch: int | None = None,
        plan: Plan | None = None,
        ranks_per_node: int | None = None,
        epoch_steps: int | None = None,
        drop_last: bool = True,
        uneven: Uneven = "empty",
        collate_fn: Collate | None = None,
        on_error: OnError = "raise",
        max_skipped: float | None = None,
        device: str | int | torch.device | None = None,
        pin_memory: bool = False,
        progress: bool = False,
        num_threads: int = 1,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        multiprocessing_context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        timeout: float = 0,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            hint = "give StreamingDataset(url), or StreamingDataset(dataset) with an mdsx.Dataset or mdsx.Mixture"
            raise UsageError("the dataset is not a StreamingDataset", found=type(dataset).__name__, hint=hint)
        if not hasattr(dataset, "_reading"):
            raise UsageError(
                f"{type(dataset).__name__}.__init__ has not called StreamingDataset's",
                hint="call super().__init__(url) first",
            )
        if type(dataset).__iter__ is not StreamingDataset.__iter__:
            raise UsageError(
                f"{type(dataset).__name__} overrides __iter__, which StreamingDataLoader does not call: it reads "
                "batches of columns",
                hint="give the change of a sample as transform=, or use PyTorch's DataLoader(batch_size=None)",
            )
        spec = replace(
            dataset._reading.spec,
            ranks=dataset._reading.spec.ranks.with_node(ranks_per_node),
            batching=checked_batching(batching),
            plan=plan,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            micro_batch=micro_batch,
            epoch_steps=epoch_steps,
            drop_last=drop_last,
            uneven=uneven,
            collate_fn=collate_fn,
            on_error=on_error,
            max_skipped=max_skipped,
        )
        reading = dataset._reading.respecified(spec)  # in the first phase of a plan
        if dataset._batch_size is not None and dataset._batch_size != (rows := reading.spec.rows):
            raise UsageError("batch_size differs from the dataset's", found=rows, expected=dataset._batch_size)
        if dataset._drop_last is not None and dataset._drop_last != drop_last:
            raise UsageError(
                "drop_last differs from the dataset's",
                found=drop_last,
                expected=dataset._drop_last,
                hint=f"give drop_last={dataset._drop_last} to the loader, or none to the dataset",
            )
        self.dataset = dataset
        self.num_threads, self.num_workers = num_threads, num_workers
        self.pin_memory = pin_memory
        self.device = None if device is None else checked_device(device)
        check_gpu(reading, self.device)
        workforce = Workforce(
            num_threads,
            num_workers,
            prefetch_factor,
            persistent_workers,
            multiprocessing_context,
            worker_init_fn,
            timeout,
            seed=draw_seed,
            setup=setup_worker,
        )
        super().__init__(
            reading,
            first_batching(spec).run(dataset._run, epoch_steps),
            Ahead(workforce, carrier(self.device, pin_memory)),
            progress=progress,
        )
        dataset._loaders.add(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dataset._loaders.add(self)

    def __iter__(self) -> Iterator[Any]:
        if gathers_tensors() and self._reading.spec.uneven != "repeat":
            steps = self._steps
            if steps.last_size(self._run.coming) % steps.world_size:
                raise uneven_shares(steps.world_size)
        return super().__iter__()

    @property
    def sampler(self) -> StreamingDataLoader:
        """Return the loader itself: frameworks call `loader.sampler.set_epoch(epoch)` before each epoch."""
        return self
