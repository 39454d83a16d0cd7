"""A dataset as a source of Ray Data: each task reads some shards, in order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from mdsx.datasets import Dataset
from mdsx.engines.ray_library import BlockMetadata, Datasource, ReadTask
from mdsx.engines.reading import pieces_of, shard_sizes, tables
from mdsx.storage import answered, believe


class DatasetSource(Datasource):  # type: ignore[misc]  # Ray is not there where the types are checked
    """The datasource that Ray reads: its size, its name, and tasks that return Arrow tables."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        self._dataset = dataset

    def get_name(self) -> str:
        return "mdsx"

    def estimate_inmemory_data_size(self) -> int:
        return int(shard_sizes(self._dataset).sum())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[Any]:
        import ray

        shared = ray.put(self._dataset)  # once, not with each task, because it contains the index
        known = answered()
        return [
            ReadTask(
                partial(_read, shared, known, piece.start, piece.stop),
                BlockMetadata(
                    num_rows=piece.stop - piece.start, size_bytes=piece.size, input_files=None, exec_stats=None
                ),
                per_task_row_limit=per_task_row_limit,
            )
            for piece in pieces_of(self._dataset, max(parallelism, 1))
        ]


def _read(shared: Any, known: tuple[str, ...], start: int, stop: int) -> Iterator[Any]:
    import ray

    believe(known)
    yield from tables(ray.get(shared), start, stop)
