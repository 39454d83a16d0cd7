"""Loader: the run of a StreamingDataLoader as NumPy arrays, in threads and without PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mdsx.base.mosaicml import LOADER, explain
from mdsx.datasets import Dataset, Mixture, Sample
from mdsx.decoding import check_on_cpu
from mdsx.format import numpy_values
from mdsx.loader.ahead import Ahead, Workforce
from mdsx.loader.assembly import ArrayBackend, Collate, OnError
from mdsx.loader.batches import BatchLoader
from mdsx.loader.collation import Uneven, join_samples
from mdsx.loader.ranks import Mesh, Ranks
from mdsx.loader.reading import Reading
from mdsx.loader.spec import RunSpec, checked_batching, first_batching, opened
from mdsx.order import Shuffle
from mdsx.shards import ColumnChoice, Decode, DTypes, Fill
from mdsx.storage import StorageOptions
from mdsx.storage.cache import CacheLike
from mdsx.stream import Batching, Plan, Run


def _collate(samples: Sequence[Any]) -> Any:
    """Join samples into a batch: arrays and numbers become an array [n, ...] if they fit, other values a list."""
    return join_samples(samples, _stacked, list, np.asarray)


def _stacked(values: list[Any]) -> Any:
    """Return arrays of one shape and type, or numbers of one type, as an array. Raise TypeError for others."""
    first = values[0]
    if isinstance(first, np.ndarray):
        same = all(
            isinstance(value, np.ndarray) and (value.shape, value.dtype) == (first.shape, first.dtype)
            for value in values
        )
        if not same:
            raise TypeError("the arrays differ")
        return np.stack(values)
    if isinstance(first, bool | int | float | np.generic) and len({type(value) for value in values}) == 1:
        return np.array(values)
    if hasattr(first, "__array__"):
        return _stacked([np.asarray(value) for value in values])
    raise TypeError("not numbers")


ARRAYS = ArrayBackend(array=numpy_values, column=numpy_values, listed=list, collate=_collate)


class Loader(BatchLoader):
    """The batches of a rank as NumPy arrays, epoch by epoch: one `for` is one epoch, or the rest of it after a resume.

        loader = mdsx.Loader(url, 32, seed=7, rank=jax.process_index(), world_size=jax.process_count())
        while loader.epoch < epochs:
            for batch in loader:
                ...

    It needs no PyTorch. It has the same samples in the same batches as `mdsx.torch.StreamingDataLoader`, and either can
    load the other's state. A batch is a dict of columns: arrays [n, ...] for columns of a fixed size, otherwise lists
    of n values as `mdsx.Dataset` returns them. With `transform` or `collate_fn`, a batch is what `collate_fn` returns
    for a list of samples. `mdsx.torch.StreamingDataLoader` documents errors, interrupted loops and copies; the same
    applies here.

    Args:
        dataset: A URL (path, `file://...`, `s3://bucket/prefix`), an `mdsx.Dataset`, which may be a selection, or an
            `mdsx.Mixture`.
        batch_size: Samples, or packed rows, per rank. The global batch is this times the world size. Do not give it
            with `mdsx.MaxTokens` and `mdsx.Buckets`.

        columns: Decode only these columns: their names, or a mapping from new names to names in the dataset.
        dtypes: Number types to convert columns to, such as `{"tokens": "int64"}`; see `mdsx.Dataset`.
        fill: Values that replace null, such as `{"score": math.nan}`; see `mdsx.Dataset`.
        decode: Decoders for columns of encoded bytes, such as `{"image": mdsx.Image(size=224)}`. They run in the
            threads or processes that prepare batches, before the transform. Null stays None. Arrays of one size are
            stacked; other columns, and columns that may be null, become lists. See docs/images.md.
        cache: An `mdsx.Cache`, or its directory. An `mdsx.Dataset`, or a dataset in a mixture, may have a cache
            already; two different caches are an error.
        storage_options: As in `mdsx.Dataset`, if the dataset is a URL.

        seed: The seed of the order, an unsigned 64-bit integer.
        shuffle: True, an `mdsx.Shuffle`, or False for the order in which samples were written.
        epoch_samples: The number of samples in an epoch, by default the dataset's. Shorter and longer epochs continue
            through the dataset, and leave out only what `drop_last` drops.
        rank: This process's rank. The default is torch.distributed's once it is initialised, or else the launcher's
            (torchrun, Slurm, Open MPI, ..., see docs/training.md), or else 0.
        world_size: The number of processes. The default is as for `rank`, or else 1. Give both or neither.
        replication: Which ranks get the same samples, for tensor, pipeline and context parallelism. A number R means
            ranks 0 to R-1, R to 2R-1, and so on. With a `torch.distributed.device_mesh`, give it and the names of these
            dimensions: `(mesh, "tp")` or `(mesh, ("pp", "tp"))`. Batch sizes and states do not count replicas.
        ranks_per_node: How many successive ranks a node has, for `balance` of `mdsx.Pack`, not counting replicas. It
            must divide the number of ranks. The default comes from the launcher, if all nodes are alike.

        global_batch_size: As in StreamingDataLoader, instead of `batch_size`.
        micro_batch: As in StreamingDataLoader, with `global_batch_size`.
        batching: `mdsx.Pad`, `mdsx.MaxTokens`, `mdsx.Pack` or `mdsx.Buckets`: padded, length-bounded or packed batches,
            or batches of one shape, see docs/batches.md. A transform is applied to each sample before it is packed.
        plan: An `mdsx.Plan`: proportions, batching and step sizes, phase by phase. The other arguments apply where the
            plan says nothing. See docs/pretraining.md.
        epoch_steps: The number of batches of an epoch, with `batching`. The groups of samples then continue from one
            epoch into the next, and none is left out.
        drop_last: Whether to leave out samples that do not fill the epoch's last batch. Otherwise they are split over
            the ranks as a shorter batch.
        uneven: What ranks get of a last batch that cannot be divided evenly: "empty" or "repeat", as in
            StreamingDataLoader.

        transform: A function of a sample, a dict as `mdsx.Dataset` returns it. It may return anything.
        random_transform: The same with a NumPy generator, seeded by the sample's seed, as in StreamingDataset. It is
            called as `random_transform(sample, rng)`.
        info_column: Add a column with this name that says where each sample comes from, as in StreamingDataset.
        zero_copy: Whether values of `bytes` and images are read-only memory views of the mapped shards instead of
            copies.
        collate_fn: A function from a list of samples to a batch. The default stacks arrays and numbers, and makes lists
            of other values.
        on_error: "skip" leaves out samples that are damaged, or for which the transform raises.
        max_skipped: With on_error="skip", the share of samples that may fail, as in StreamingDataLoader.

        num_threads: How many threads prepare batches. More than one helps if the transform is slow and releases the
            GIL, as image decoders do. The samples in a batch stay the same.
        num_workers: How many processes prepare batches instead, which helps if the transform is slow and holds the
            GIL. They seed `random` and NumPy from `seed`, the epoch and their number, which `mdsx.worker_info()` has.
        prefetch_factor: How many batches, or groups of up to 16 small batches, each worker prepares ahead.
        persistent_workers: Whether workers stay for the next epoch.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context of `multiprocessing`.
        worker_init_fn: Called in each worker with its number.
        timeout: Seconds to wait for a batch from a worker; 0 waits forever.
        progress: Whether to show one line with the epoch's progress on rank 0.

    Raises:
        MissingError: There is no finished dataset.
        UsageError: An argument is invalid.
    """

    @explain("Loader", LOADER)
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset | Mixture,
        batch_size: int | None = None,
        *,
        columns: ColumnChoice | None = None,
        dtypes: DTypes | None = None,
        fill: Fill | None = None,
        decode: Decode | None = None,
        cache: CacheLike = None,
        storage_options: StorageOptions | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        epoch_samples: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        replication: int | tuple[Mesh, str | Sequence[str]] = 1,
        ranks_per_node: int | None = None,
        batching: Batching | None = None,
        global_batch_size: int | None = None,
        micro_batch: int | None = None,
        plan: Plan | None = None,
        epoch_steps: int | None = None,
        drop_last: bool = True,
        uneven: Uneven = "empty",
        transform: Callable[[Sample], Any] | None = None,
        random_transform: Callable[[Sample, np.random.Generator], Any] | None = None,
        info_column: str | None = None,
        zero_copy: bool = False,
        collate_fn: Collate | None = None,
        on_error: OnError = "raise",
        max_skipped: float | None = None,
        num_threads: int = 1,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        multiprocessing_context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        timeout: float = 0,
        progress: bool = False,
    ) -> None:
        self.num_threads, self.num_workers = num_threads, num_workers
        ahead = Ahead(
            Workforce(
                num_threads,
                num_workers,
                prefetch_factor,
                persistent_workers,
                multiprocessing_context,
                worker_init_fn,
                timeout,
                seed=partial(_worker_seed, seed),
            )
        )
        spec = RunSpec(
            dataset=opened(dataset, cache, storage_options),
            columns=columns,
            dtypes=dtypes,
            fill=fill,
            decode=decode,
            seed=seed,
            shuffle=shuffle,
            epoch_samples=epoch_samples,
            ranks=Ranks(rank, world_size, replication, ranks_per_node),
            batching=checked_batching(batching),
            plan=plan,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            micro_batch=micro_batch,
            epoch_steps=epoch_steps,
            drop_last=drop_last,
            uneven=uneven,
            transform=transform,
            random_transform=random_transform,
            info_column=info_column,
            zero_copy=zero_copy,
            collate_fn=collate_fn,
            on_error=on_error,
            max_skipped=max_skipped,
            backend=ARRAYS,
        )
        run = first_batching(spec).run(Run(shuffled=bool(shuffle)), epoch_steps)
        reading = Reading.of(spec)
        check_on_cpu(reading.view.decodes, "an mdsx.Loader")
        super().__init__(reading, run, ahead, progress=progress)


def _worker_seed(seed: int, epoch: int) -> int:
    """Return the seed of workers that start in `epoch`: 62 bits, so that a worker's number can be added."""
    return int(np.random.SeedSequence([int(seed), epoch]).generate_state(1, np.uint64)[0]) >> 2
