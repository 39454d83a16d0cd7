"""StreamingDataLoader: the batches of a StreamingDataset, made in a thread or in worker processes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from copy import copy
from typing import Any, Unpack

# NumPy imports these two on first use. Import them before workers are forked: a worker may garbage-collect inherited
# loaders during an import, which breaks it.
import numpy.ma
import numpy.random  # noqa: F401
import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin

from mdsx.errors import UsageError, shown
from mdsx.loader import BatchLoader, Collate, OnError, Uneven, rows_of
from mdsx.mosaicml import STREAMING_DATA_LOADER, explain
from mdsx.stream import Batching, Layout, Place, Steps, Task
from mdsx.torch.dataset import StreamingDataset
from mdsx.torch.dividing import gathers_tensors, uneven_shares
from mdsx.torch.workers import WorkerOptions, Workers


class LoaderOptions(WorkerOptions, total=False):
    """More arguments of `StreamingDataLoader`, beside those of `WorkerOptions`.

    Attributes:
        max_skipped: With on_error="skip": the share of samples that may fail, 0 to 1. `next()` raises a SkippedError
            once more than this share of the samples read so far on this rank, or of 1,000 if these are fewer, were left
            out. The counts are those of `stats()`: a resumed program counts from 0.
    """

    max_skipped: float | None


class StreamingDataLoader(BatchLoader):
    """The batches of a `StreamingDataset`, epoch by epoch: one `for` is one epoch, or the rest of it after a resume.

        loader = StreamingDataLoader(StreamingDataset(url, seed=7), batch_size=32)
        while loader.epoch < epochs:
            for batch in loader:
                ...

    This loop is correct after a resume, after an error, and when it is run again. A batch is a dict of columns: those
    of a fixed size as tensors [n, ...], the others as lists of n values. With `transform` or `collate_fn`, it is what
    `collate_fn` makes of a list of samples.

    `next()` raises an exception, of `transform` for example, at the batch that it prevents. The position does not
    advance: `next()` on the same iterator and a new `for` both continue with that batch. After `break`, Ctrl-C or an
    exception in the body of the loop, the next `for` is the next epoch, with a warning; call `resume()` before it to
    take the rest of the epoch that was left. Without shuffling, it is the same epoch again.

    A copy of a loader, also by pickle, is independent of it and at the same position.

    Args:
        dataset: What to read.
        batch_size: Samples per rank, or packed rows. The global batch is that times the world size. It is not given
            with `mdsx.MaxTokens`.
        batching: `mdsx.Pack` or `mdsx.MaxTokens`: packed rows or length-bounded batches instead of batches of samples,
            see docs/batches.md. A `transform` is applied to each sample before it is packed.
        epoch_steps: The number of batches of an epoch, with `batching`. The groups of samples then continue from one
            epoch into the next: none is left out.
        drop_last: Whether samples that do not fill the epoch's last batch are left out. Otherwise they are split over
            the ranks as a shorter batch.
        collate_fn: From a list of samples to a batch. The default is `mdsx.torch.collate` if the dataset has a
            `transform`.
        uneven: What the ranks get of a last batch that they cannot divide evenly. "empty": shares of different sizes;
            a rank without samples gets a batch of 0 samples with the structure of the others. "repeat": batches of one
            size on all ranks, filled up with repeated samples, and in every batch a mask, bool [n], which is False for
            these: the key "valid", or for a batch that is no dict, the second of the pair (batch, mask).
        on_error: "skip" leaves out samples that are damaged, or for which `transform` raises. Each is logged (by the
            logger "mdsx") and counted in `stats().skipped`. Positions count it, so ranks keep equal numbers of
            batches. A batch with no sample left is what `uneven` says. Errors of `collate_fn` and of storage are
            raised.
        pin_memory: Whether tensors are copied to pinned memory.
        progress: Whether to show one line with the epoch's progress and the statistics of the last ten seconds. It is
            shown on rank 0, on stderr, if that is a terminal or a notebook.
        num_workers: 0 prepares batches in a background thread, which is faster unless `transform` is slow; n > 0 in n
            processes. Neither changes which samples are in a batch.
        options: `max_skipped`, see `mdsx.torch.LoaderOptions`; and more about worker processes, see
            `mdsx.torch.WorkerOptions`.

    Raises:
        UsageError: An argument is invalid, or differs from the dataset's.
    """

    @explain("StreamingDataLoader", STREAMING_DATA_LOADER)
    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int | None = None,
        *,
        batching: Layout | None = None,
        epoch_steps: int | None = None,
        drop_last: bool = True,
        collate_fn: Collate | None = None,
        uneven: Uneven = "empty",
        on_error: OnError = "raise",
        pin_memory: bool = False,
        progress: bool = False,
        num_workers: int = 0,
        **options: Unpack[LoaderOptions],
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            hint = "give StreamingDataset(url), or StreamingDataset(dataset) of an mdsx.Dataset or mdsx.Mixture"
            raise UsageError("the dataset is not a StreamingDataset", found=type(dataset).__name__, hint=hint)
        if type(dataset).__iter__ is not StreamingDataset.__iter__:
            raise UsageError(
                f"{type(dataset).__name__} overrides __iter__, which StreamingDataLoader does not call: it reads "
                "batches of columns",
                hint="give what it does to a sample as transform=, or use PyTorch's DataLoader(batch_size=None)",
            )
        batch_size = rows_of(batch_size, batching, epoch_steps, collate_fn, uneven)
        if dataset._batch_size is not None and dataset._batch_size != batch_size:
            raise UsageError("batch_size differs from the dataset's", found=batch_size, expected=dataset._batch_size)
        if dataset._drop_last is not None and dataset._drop_last != drop_last:
            raise UsageError(
                "drop_last differs from the dataset's",
                found=drop_last,
                expected=dataset._drop_last,
                hint=f"give drop_last={dataset._drop_last} to the loader, or none to the dataset",
            )
        if unknown := set(options) - set(LoaderOptions.__annotations__):
            raise TypeError(f"StreamingDataLoader() got an unexpected keyword argument {min(unknown)!r}")
        max_skipped = options.pop("max_skipped", None)
        prefetch_factor = options.get("prefetch_factor")
        for name, value, least in (("num_workers", num_workers, 0), ("prefetch_factor", prefetch_factor, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise UsageError(f"{name} must be an integer of at least {least}", found=shown(value))
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        super().__init__(
            dataset._data,
            dataset._run,
            batch_size,
            batching=batching,
            epoch_steps=epoch_steps,
            drop_last=drop_last,
            collate_fn=collate_fn,
            uneven=uneven,
            on_error=on_error,
            max_skipped=max_skipped,
            progress=progress,
        )
        self._workers = Workers(num_workers, options)
        if num_workers == 0 and (prefetch_factor is not None or options.get("persistent_workers")):
            raise UsageError("prefetch_factor and persistent_workers need num_workers > 0")
        dataset._loaders.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_workers": copy(self._workers)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dataset._loaders.add(self)

    def __iter__(self) -> Iterator[Any]:
        if gathers_tensors() and self._data.maker.uneven != "repeat" and isinstance(self._batching, Batching):
            size, ranks = self._batching.last_size(self._run.coming[1]), self._batching.world_size
            if size % ranks:
                raise uneven_shares(ranks)
        return super().__iter__()

    @property
    def sampler(self) -> StreamingDataLoader:
        """Return the loader itself: frameworks call `loader.sampler.set_epoch(epoch)` before each epoch."""
        return self

    @property
    def _worker_totals(self) -> Sequence[int]:
        return self._workers.totals

    def _restart(self) -> None:
        super()._restart()
        self._workers.forget()

    def _open(self, batching: Steps, epoch: int, place: Place) -> Generator[tuple[Task, Any], None, None]:
        if self.num_workers > 0:
            return self._workers.batches(self._data, batching, epoch, place, self._meter)
        return super()._open(batching, epoch, place)

    def _handed_out(self, batching: Steps, tasks: Iterator[tuple[Task, Any]]) -> Iterator[tuple[Task, Any]]:
        tasks = super()._handed_out(batching, tasks)
        if not (self.pin_memory and torch.cuda.is_available()):
            return tasks
        return ((task, pin(batch)) for task, batch in tasks)  # type: ignore[no-untyped-call]  # PyTorch's, untyped
