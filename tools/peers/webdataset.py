"""WebDataset: ShardWriter with tars of 64 MiB; members are encoded and decoded here.

It shuffles 100 shards and 1,000 samples, as in its README, and batches them in a WebLoader; ranks and workers share the
shards by split_by_node and split_by_worker. It has no state that could be saved, so the matrix has only uninterrupted
runs, and no random access.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.account import Id
from tools.conformance.matrix import Cell
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.workloads import columns_of, decode

boto3, config, webdataset = Lazy("boto3"), Lazy("botocore.config"), Lazy("webdataset")
torch_data = Lazy("torch.utils.data")
_NO_STATE = (
    "\"If you really do want to keep track of epochs and samples, you'll have to keep track of the shards and samples "
    "you have already read. [...] WebDataset can't really do this for you.\" (its author, webdataset issue 271)"
)
_BUFFER = 1000


class _Loader(Loader):
    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        random.seed(self._task.seed + epoch)  # RandomMix draws from the global generator; workers fork with it
        return super().batches(epoch)


class WebDataset(Peer):
    name = environment = "webdataset"
    title = "WebDataset"
    remote = True
    packages = ("webdataset",)
    imports = ("webdataset",)
    rank_loader = _Loader

    def unsupported(self, cell: Cell) -> str | None:
        return _NO_STATE if cell.resumes or cell.phases else None

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        how = {"maxcount": layout.shard} if layout.shard else {"maxsize": layout.size}
        with webdataset.ShardWriter(str(directory / "%05d.tar"), verbose=0, encoder=False, **how) as out:
            for number, sample in enumerate(map(make, ids)):
                members = {name: _encode(value) for name, value in sample.items()}
                out.write({"__key__": f"{number:09}", **members})

    def _dataset(self, reading: Reading) -> Any:
        if reading.cache:
            Path(reading.cache).mkdir(exist_ok=True)
        parts = [
            webdataset.WebDataset(
                _signed(source) if reading.cache else sorted(map(str, Path(source).glob("*.tar"))),
                cache_dir=reading.cache,
                nodesplitter=webdataset.split_by_node,
                shardshuffle=100,
                detshuffle=True,
                seed=reading.seed,
                empty_check=False,  # with fewer shards than ranks x workers, some have nothing to do
            )
            for source in reading.sources
        ]
        dataset: Any = parts[0]
        if reading.weights:
            dataset = webdataset.DataPipeline(webdataset.RandomMix(parts, reading.weights))
        return dataset.compose(webdataset.detshuffle(_BUFFER, seed=reading.seed), webdataset.map(values_of))

    def loader(self, reading: Reading) -> Any:
        collate: Any = torch_data.default_collate if reading.decoded else columns_of
        batches = webdataset.batched(reading.batch_size, collation_fn=collate, partial=True)
        how = {"num_workers": reading.workers, "persistent_workers": reading.leg is not None and reading.workers > 0}
        dataset = self._dataset(reading)
        if reading.decoded:
            dataset = dataset.compose(webdataset.map(partial(decode, size=reading.size)))
        return webdataset.WebLoader(dataset.compose(batches), batch_size=None, **how)


def _encode(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return value if isinstance(value, bytes) else str(value).encode()


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "tokens": lambda data: np.frombuffer(data, np.uint16),
    "image": bytes,
    "text": bytes.decode,
    "id": int,
    "label": int,
}


def values_of(sample: dict[str, Any]) -> dict[str, Any]:
    """The values of a sample's members."""
    return {name: _DECODERS[name](data) for name, data in sample.items() if name in _DECODERS}


def _signed(source: str) -> list[str]:
    """URLs for curl, which fetches them: it has no client of S3."""
    client = boto3.client("s3", config=config.Config(signature_version="s3v4"))
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]]
    return [client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}) for key in sorted(keys)]


PEER = WebDataset()
