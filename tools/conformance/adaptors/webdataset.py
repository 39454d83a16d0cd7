"""WebDataset: split_by_node, split_by_worker, detshuffle of shards and samples, WebLoader.

It has no state that could be saved, so only uninterrupted runs are made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, shards_of, text_of

_NO_STATE = (
    "\"If you really do want to keep track of epochs and samples, you'll have to keep track of the shards and samples "
    "you have already read. [...] WebDataset can't really do this for you.\" (its author, webdataset issue 271)"
)


class WebDataset(Adaptor):
    name = "webdataset"
    title = "WebDataset"
    packages = ("webdataset",)
    requirements = "webdataset"

    def unsupported(self, cell: Cell) -> str | None:
        return _NO_STATE if cell.resumes or cell.phases else None

    def warm(self) -> None:
        import webdataset  # noqa: F401

    def prepare(self, directory: Path, data: Data) -> None:
        import webdataset

        directory.mkdir(parents=True)
        for number, ids in enumerate(shards_of(data)):
            with webdataset.TarWriter(str(directory / f"{number:05}.tar")) as out:
                for each in ids:
                    out.write({"__key__": f"{each:08}", "json": {"id": each, "text": text_of(each)}})

    def write(self, directory: Path, ids: Sequence[int], shard: int) -> None:
        import webdataset

        directory.mkdir(parents=True, exist_ok=True)
        with webdataset.ShardWriter(str(directory / "%05d.tar"), maxcount=shard, verbose=0) as out:
            for each in ids:
                out.write({"__key__": f"{each:08}", "json": {"id": each, "text": text_of(each)}})

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task)


class _Loader:
    epoch = 0

    def __init__(self, task: Task) -> None:
        import webdataset

        self._seed = task.seed
        more: dict[str, Any] = {}
        if task.remote:
            more["cache_dir"] = str(Path(task.directory, "cache"))
            Path(more["cache_dir"]).mkdir(exist_ok=True)
        parts = [
            webdataset.WebDataset(
                _signed(source) if task.remote else sorted(map(str, Path(source).glob("*.tar"))),
                **more,
                nodesplitter=webdataset.split_by_node,
                workersplitter=webdataset.split_by_worker,
                shardshuffle=100,
                detshuffle=True,
                seed=task.seed,
                empty_check=False,  # fewer shards than ranks x workers: some have nothing to do
            )
            for source in task.sources()
        ]
        dataset: Any = parts[0]
        if len(parts) > 1:
            dataset = webdataset.DataPipeline(webdataset.RandomMix(parts, list(task.weights)))
        dataset = dataset.compose(
            webdataset.detshuffle(100, seed=task.seed),
            webdataset.map(_id_of),
            webdataset.batched(task.shape.batch, collation_fn=list, partial=True),
        )
        self._loader = webdataset.WebLoader(
            dataset, batch_size=None, num_workers=task.shape.workers, persistent_workers=task.shape.workers > 0
        )

    def batches(self, epoch: int) -> Iterator[list[int]]:
        random.seed(self._seed + epoch)  # RandomMix draws from the global generator; workers fork with it
        yield from self._loader

    def state(self) -> Any:
        raise NotImplementedError(_NO_STATE)


def _id_of(sample: dict[str, Any]) -> int:
    value = json.loads(sample["json"])
    return checked([value["id"]], [value["text"]])[0]


def _signed(source: str) -> list[str]:
    """URLs for curl, which fetches them: it has no client of S3."""
    import boto3
    from botocore.config import Config

    client: Any = boto3.client("s3", config=Config(signature_version="s3v4"))
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]]
    return [client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}) for key in sorted(keys)]


ADAPTOR = WebDataset()
