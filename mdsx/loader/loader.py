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
    """Join samples into a batch: arrays and numbers to an array [n, ...], what does not fit into one to a list."""
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
    raise TypeError("no numbers")


ARRAYS = ArrayBackend(array=numpy_values, column=numpy_values, listed=list, collate=_collate)


class Loader(BatchLoader):
    """The batches of a rank as NumPy arrays, epoch by epoch: one `for` is one epoch, or the rest of it after a resume.

        loader = mdsx.Loader(url, 32, seed=7, rank=jax.process_index(), world_size=jax.process_count())
        while loader.epoch < epochs:
            for batch in loader:
                ...

    It needs no PyTorch, and is the same run as that of `mdsx.torch.StreamingDataLoader`: the same samples in the same
    batches, and a state that fits both. A batch is a dict of columns: those of a fixed size as arrays [n, ...], the
    others as lists of n values, each as `mdsx.Dataset` returns it. With `transform` or
    `collate_fn`, it is what `collate_fn` makes of a list of samples. `mdsx.torch.StreamingDataLoader` says more about
    errors, a loop that was left, and copies: all of it is true here.

    Args:
        dataset: A URL (path, `file://...`, `s3://bucket/prefix`), an `mdsx.Dataset`, which may be a selection, or an
            `mdsx.Mixture`.
        batch_size: Samples per rank, or packed rows. The global batch is that times the world size. It is not given
            with `mdsx.MaxTokens` and `mdsx.Buckets`.

        columns: The only columns to decode: their names, or a mapping from new names to those in the dataset.
        dtypes: Columns that are read as another type of numbers, such as `{"tokens": "int64"}`; see `mdsx.Dataset`.
        fill: What comes in place of null, such as `{"score": math.nan}`; see `mdsx.Dataset`.
        decode: What decodes columns of encoded bytes, such as `{"image": mdsx.Image(size=224)}`, in the threads or
            processes that prepare batches, before the transform. Null stays None. Arrays of one size are joined, those
            of other columns, and of columns that may be null, are in lists. See docs/images.md.
        cache: An `mdsx.Cache`, or its directory. An `mdsx.Dataset`, or a dataset of a mixture, may have it instead; it
            is an error to give both, and not the same.
        storage_options: As in `mdsx.Dataset`, if the dataset is a URL.

        seed: The seed of the order, an unsigned 64-bit integer.
        shuffle: True, an `mdsx.Shuffle`, or False: samples then come in the order in which they were written.
        epoch_samples: The samples of an epoch, if not those of the dataset. Shorter and longer epochs continue through
            the dataset, and leave out only what `drop_last` drops.
        rank: This process among `world_size`. The default is torch.distributed's once it is initialised, or
            else the launcher's (torchrun, Slurm, Open MPI, ..., see docs/training.md), or else 0.
        world_size: The number of processes; default as for `rank`, or else 1. It is given together with `rank`.
        replication: Which ranks see the same samples: those of tensor, pipeline and context parallelism. A number R
            means ranks 0 to R-1, R to 2R-1, and so on. With a `torch.distributed.device_mesh`, give it and the names of
            those dimensions: `(mesh, "tp")` or `(mesh, ("pp", "tp"))`. Batch sizes and states do not count replicas.
        ranks_per_node: How many successive ranks a node has, for `balance` of `mdsx.Pack`: of those that see different
            samples, so without replicas. It divides their number. The default is what the launcher says, if all nodes
            are alike.

        global_batch_size: As in StreamingDataLoader, instead of `batch_size`.
        micro_batch: As in StreamingDataLoader, with `global_batch_size`.
        batching: `mdsx.Pad`, `mdsx.MaxTokens`, `mdsx.Pack` or `mdsx.Buckets`: padded, length-bounded or packed batches,
            or batches of one shape, see docs/batches.md. A transform is applied to each sample before it is packed.
        plan: An `mdsx.Plan`: proportions, batching and sizes of steps, phase by phase. What it does not give, the other
            arguments do. See docs/pretraining.md.
        epoch_steps: The number of batches of an epoch, with `batching`. The groups of samples then continue from one
            epoch into the next: none is left out.
        drop_last: Whether samples that do not fill the epoch's last batch are left out. Otherwise they are split over
            the ranks as a shorter batch.
        uneven: What the ranks get of a last batch that they cannot divide evenly: "empty" or "repeat", as in
            StreamingDataLoader.

        transform: A function from a sample, a dict as `mdsx.Dataset` returns it, to anything.
        random_transform: The same with a NumPy generator made from the sample's seed, as in StreamingDataset: it is
            called as `random_transform(sample, rng)`.
        info_column: The name of one more column, which says where each sample is from, as in StreamingDataset.
        zero_copy: Whether values of `bytes` and images are read-only memory views of the mapped shards instead of
            copies.
        collate_fn: From a list of samples to a batch. The default joins arrays and numbers to arrays, and the rest to
            lists.
        on_error: "skip" leaves out samples that are damaged, or for which the transform raises.
        max_skipped: With on_error="skip": the share of samples that may fail, as in StreamingDataLoader.

        num_threads: How many threads prepare batches. More than one helps if the transform is slow and
            releases the GIL, as decoders of images do. It does not change which samples are in a batch.
        num_workers: How many processes prepare batches instead, which helps if the transform is slow and holds the
            GIL. They seed `random` and NumPy from `seed`, the epoch and their number; `mdsx.worker_info()` names them.
        prefetch_factor: What each worker prepares ahead: that many batches, or groups of up to 16 if they are small.
        persistent_workers: Whether workers stay for the next epoch.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context of `multiprocessing`.
        worker_init_fn: Called in each worker with its number.
        timeout: Seconds to wait for a batch from a worker; 0 waits for ever.
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
    """Return the seed of worker processes that start in `epoch`: 62 bits, so that a worker's number can be added."""
    return int(np.random.SeedSequence([int(seed), epoch]).generate_state(1, np.uint64)[0]) >> 2
