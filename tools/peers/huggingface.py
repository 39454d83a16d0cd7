"""Hugging Face datasets, streaming from Parquet: split_dataset_by_node and torchdata's StatefulDataLoader.

Parquet is written by pyarrow with its defaults, in batches: files of about 64 MiB with row groups of 1,000 samples.
Benchmarks read batches through a shuffle buffer of 1,000 samples that is filled from one file at a time, which is
several times faster than from its default of ten. The matrix does not use the buffer, since its documentation says that
"examples from shuffle buffers are lost when resuming"; set_epoch changes the order of the files from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.peers import Layout, Lazy, Make, Reading
from tools.peers.torchdata import StatefulPeer, stateful_dataloader
from tools.workloads import arrow_of

datasets, distributed = Lazy("datasets"), Lazy("datasets.distributed")
pyarrow, parquet = Lazy("pyarrow"), Lazy("pyarrow.parquet")
torch_data = Lazy("torch.utils.data")
_ROWS = 1000
_BUFFER = 1000


class HuggingFace(StatefulPeer):
    name = environment = "huggingface"
    title = "HF datasets"
    in_bench = writes = False  # pyarrow writes what it reads
    packages = ("datasets", "torchdata", "pyarrow")
    imports = ("datasets", "torchdata.stateful_dataloader")
    settings: ClassVar[Mapping[str, str]] = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        samples = list(map(make, ids))
        columns = {name: [sample[name] for sample in samples] for name in samples[0]}
        _write_files(directory, columns, layout.shard or len(ids))

    def write_batches(self, directory: Path, kind: str, batch: dict[str, Any]) -> None:
        _write_files(directory, batch)

    def loader(self, reading: Reading) -> Any:
        cache = f"{reading.leg.directory}/cache" if reading.leg else reading.cache
        how: dict[str, Any] = {"split": "train", "streaming": True, "cache_dir": cache}
        files = [sorted(map(str, Path(source).glob("*.parquet"))) for source in reading.sources]
        parts = [datasets.load_dataset("parquet", data_files=each, **how) for each in files]
        dataset: Any = parts[0]
        if reading.leg is None:
            shuffled = dataset.shuffle(seed=reading.seed, buffer_size=_BUFFER, max_buffer_input_shards=1)
            batches = shuffled.with_format("numpy").batch(reading.batch_size)
            return torch_data.DataLoader(batches, None, num_workers=reading.workers)
        if reading.weights:
            mixture = {"probabilities": reading.weights, "stopping_strategy": "first_exhausted"}
            dataset = datasets.interleave_datasets(parts, seed=reading.seed, **mixture)
        part = distributed.split_dataset_by_node(dataset, reading.leg.rank, reading.leg.shape.world)
        return stateful_dataloader.StatefulDataLoader(part, reading.batch_size, num_workers=reading.workers)


def _write_files(directory: Path, batch: dict[str, Any], each: int | None = None) -> None:
    """Write files with `each` samples, by default of about 64 MiB."""
    directory.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({name: arrow_of(values) for name, values in batch.items()})
    each = each or max(Layout.size * len(table) // table.nbytes, 1)
    for first in range(0, len(table), each):
        parquet.write_table(table.slice(first, each), directory / f"{first:09}.parquet", row_group_size=_ROWS)


PEER = HuggingFace()
