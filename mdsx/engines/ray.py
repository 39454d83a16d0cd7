"""Ray Data: `Datasink` writes a Ray dataset, and `read` returns one.

Rules:
- The driver begins the run when the first block is ready, before any task writes, and commits when Ray has the results
  of all tasks. The `Driver` is not sent to the tasks.
- A task writes one part. The part's number is Ray's number of the task, which is the same in all its attempts. However
  often Ray runs a task, it keeps one result, and only these attempts are committed.
- Settings of Ray under which samples could be lost are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mdsx.base.sizes import parse_size
from mdsx.datasets import Dataset
from mdsx.engines import ray_library
from mdsx.engines.ray_blocks import batch_of, check_names, columns_of
from mdsx.engines.ray_library import require_ray
from mdsx.errors import UsageError
from mdsx.format import BYTES
from mdsx.shards import ColumnChoice
from mdsx.storage import StorageOptions, open_storage, sealed
from mdsx.storage.cache import CacheLike
from mdsx.writer import WriterOptions, write_part
from mdsx.writer.runs import Done, Driver, WriteJob, Written, check_place

__all__ = ["Datasink", "read"]

_ANY = {"any": BYTES.name}  # placeholder columns, to check options before the columns are known


class Datasink(ray_library.Datasink):  # type: ignore[misc]  # Ray is not there where the types are checked
    """Writes a Ray Data dataset, every row exactly once.

        sink = mdsx.engines.ray.Datasink("s3://bucket/corpus", {"tokens": "uint16[2048]", "source": "str"})
        ray_dataset.write_datasink(sink)
        sink.written.samples

    The dataset becomes visible only when it is complete. Each Ray task gets about one shard of data, and writes a part
    with its own shards. See docs/engines.md, also for the order of the rows.

    Args:
        url: Where to write, as in `mdsx.Writer`. A path must be in a file system that all machines share.
        columns: Column name -> type, for all columns of the Ray dataset. By default, types are inferred from the first
            block, with a question mark wherever Arrow allows nulls, which is nearly everywhere. So columns of numbers
            have a fixed size only if you give their types, or if they are NumPy arrays.
        shard_size: As in `mdsx.Writer`.
        compression: As in `mdsx.Writer`.
        metadata: As in `mdsx.Writer`.
        lengths: As in `mdsx.Writer`.
        mode: "create" refuses to write over a dataset. "replace" replaces an existing dataset in one step.
        storage_options: As in `mdsx.Writer`. They are sent to the tasks.

    Raises:
        UsageError: An argument is invalid, Ray is not installed, `url` is not empty, or a setting of Ray would lose
            samples. No row was written.
        SampleError: A value does not fit its column. Like every error in a task, it reaches the caller as Ray's error.
        ChangedError: Another run finished a dataset here meanwhile.
        TransportError: Storage failed.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        columns: Mapping[str, str] | None = None,
        *,
        shard_size: int | str = "64MiB",
        compression: str | None = None,
        metadata: dict[str, Any] | None = None,
        lengths: Sequence[str] = (),
        mode: Literal["create", "replace"] = "create",
        storage_options: StorageOptions | None = None,
    ) -> None:
        require_ray()
        self._url, self._columns, self._size = os.fspath(url), columns, parse_size(shard_size, name="shard_size")
        WriterOptions.parse(columns or _ANY, self._size, compression)
        self._options: dict[str, Any] = {
            "shard_size": self._size,
            "compression": compression,
            "metadata": metadata,
            "lengths": tuple(lengths) if not isinstance(lengths, str) else lengths,
            "mode": mode,
            "storage_options": sealed(storage_options),
        }
        self._driver: Driver | None = None
        self._job: WriteJob | None = None
        self._written: Written | None = None
        check_place(open_storage(url, storage_options, write=True), mode)  # the run begins with the first block

    @property
    def written(self) -> Written:
        """Return what was written: `url`, `columns`, `samples`, `shards`, `fingerprint`.

        Raises:
            UsageError: Nothing was written yet.
        """
        if self._written is None:
            raise UsageError("nothing was written yet", file=self._url, hint="call ray_dataset.write_datasink")
        return self._written

    # --- what Ray calls on the driver

    def on_write_start(self, schema: Any = None) -> None:
        """Ray calls this before the first task. Before version 2.55 it does not pass the schema."""
        context = ray_library.DataContext.get_current()
        for setting, way in (("max_errored_blocks", "0"), ("checkpoint_config", "None")):
            if getattr(context, setting, None):
                message = f"with Ray's {setting}, samples may be lost"
                raise UsageError(message, file=self._url, hint=f"set DataContext.get_current().{setting} to {way}")
        columns = self._columns
        if columns is None:
            if schema is None:
                hint = "give the columns: Datasink(url, columns={name: type, ...})"
                raise UsageError("the columns are unknown, because there is no data", file=self._url, hint=hint)
            columns = columns_of(schema)
        elif schema is not None:
            check_names(schema, columns)
        if self._driver is not None:  # Ray does not report a write that Ctrl-C ended
            self._driver.abort()
        self._written, self._driver = None, Driver.begin(self._url, columns, **self._options)
        self._job = self._driver.job

    def on_write_complete(self, write_result: Any) -> None:
        """Ray calls this with the results of all tasks."""
        if self._driver is None:  # there was no data
            self.on_write_start()
        driver, self._driver = self._driver, None  # whatever happens now, the commit handles it
        assert driver is not None
        self._written = driver.commit(Done(*result) for result in write_result.write_returns)

    def on_write_failed(self, error: Exception) -> None:
        """Ray calls this if a task fails for good."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.abort()

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "mdsx"

    @property
    def min_bytes_per_write(self) -> int:
        """Return the least bytes that Ray passes to a task. Because it is set, Ray does not fuse the write with the
        previous step, and `on_write_start` gets the schema of the written data."""
        return self._size

    # --- in a task

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def write(self, blocks: Iterable[Any], ctx: Any) -> Done:
        """Ray calls this in each task."""
        assert self._job is not None
        return write_part(self._job, ctx.task_idx, _batches(blocks))


def _batches(blocks: Iterable[Any]) -> Iterator[Any]:
    for block in blocks:
        table = ray_library.BlockAccessor.for_block(block).to_arrow()
        if table.num_rows:
            yield batch_of(table)


def read(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    columns: ColumnChoice | None = None,
    cache: CacheLike = None,
    storage_options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
    snapshot: str | None = None,
    **options: Any,
) -> Any:
    """Read a dataset as a `ray.data.Dataset`: every sample once, as Arrow data (docs/writing.md has the types).

        ray_dataset = mdsx.engines.ray.read("s3://bucket/corpus", columns=["tokens"])

    Each Ray task reads some whole shards. Rows are in the dataset's order if Ray preserves order (docs/engines.md).

    Args:
        dataset: The URL of any dataset that `mdsx.Dataset` opens, or a dataset, such as `ds.select(...)`.
        columns: Read only these columns: their names, or a mapping from new names to names in the dataset.
        cache: As in `mdsx.Dataset`, on each machine.
        storage_options: As in `mdsx.Dataset`. They are sent to the tasks.
        index: As in `mdsx.Dataset`.
        snapshot: As in `mdsx.Dataset`.
        options: Options of `ray.data.read_datasource`: `override_num_blocks`, `concurrency`, `num_cpus`, ...

    Raises:
        UsageError: An argument is invalid, or Ray is not installed.
        MissingError: There is no finished dataset, or no such snapshot.
        TransportError: Storage failed.
    """
    require_ray()
    from mdsx.engines.ray_source import DatasetSource

    given = {"cache": cache, "storage_options": storage_options, "index": index, "snapshot": snapshot}
    if not isinstance(dataset, Dataset):
        dataset = Dataset(dataset, columns=columns, **given)  # type: ignore[arg-type]  # a mapping of all kinds
    elif any(value is not None for value in given.values()):
        found = ", ".join(name for name, value in given.items() if value is not None)
        raise UsageError(
            "these options apply only to a URL, not to an open dataset", found=found, hint="give them to mdsx.Dataset"
        )
    elif columns is not None:
        dataset = dataset.select_columns(columns)
    return ray_library.read_datasource(DatasetSource(dataset), **options)
