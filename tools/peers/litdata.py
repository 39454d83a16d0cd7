"""LitData: `optimize` with chunks of 64 MB, StreamingDataset and StreamingDataLoader; a state for each rank.

For tokens it also has a TokensLoader, as its README shows for language models: its dataset is one sequence of tokens,
cut into blocks. Images and random access use `batch_decode=1`, as the default windows are several times slower here. It
learns its rank from torch.distributed only. `drop_last=False` is given to datasets, since the default is True among
several ranks. Its version check over the network is off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.matrix import Cell
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.workloads import columns_of, decoding

litdata, torch = Lazy("litdata"), Lazy("torch")
downloader, item_loader = Lazy("litdata.streaming.downloader"), Lazy("litdata.streaming.item_loader")
_MIXTURES = (
    '"CombinedStreamingDataset and ParallelStreamingDataset resume only with the same world_size, num_workers, and '
    'batch_size" (README, Pause and resume)'
)
_ROUNDED = (
    "What was done is rounded down to a multiple of the new ranks x batch (`_round_down_drop_first`), and what lies "
    'between is read again; the README says "never duplicates".'
)
_DEALT_AGAIN = (
    "The epoch that was killed continues exactly. The next one is dealt out by ranks, workers and batch size, so its "
    "batches are not those of a run that was left alone."
)
_WIDTH = 2048  # tokens of a sample
_make: Make  # what is written: its processes are forked, and find it here


class _Loader(Loader):
    def resume(self, states: list[Any]) -> None:
        self._loader.load_state_dict(states[min(self._task.rank, len(states) - 1)])
        # It counts epochs from 1; a state at an epoch's end continues with the next one.
        self.epoch = self._loader.current_epoch - (1 if self._loader.restore else 0)


class LitData(Peer):
    name = environment = "litdata"
    title = "LitData"
    remote = True
    packages = ("litdata",)
    imports = ("boto3", "litdata")  # it imports boto3 on first use
    settings: ClassVar[Mapping[str, str]] = {"LITDATA_DISABLE_VERSION_CHECK": "1"}
    rank_loader = _Loader
    forks_to_write = True
    findings: ClassVar[Mapping[str, str]] = {
        "more-ranks": (
            "`_validate_state_dict` compares what each rank of the old run had yielded with what each rank of the new "
            "one has in all, and refuses. Killed earlier in the epoch, it continues, as on fewer ranks."
        ),
        **dict.fromkeys(("4-to-3-batch", "batch-odd", "all"), _ROUNDED),
        **dict.fromkeys(("fewer-ranks", "4-to-3", "nodes", "workers", "no-workers", "twice-changed"), _DEALT_AGAIN),
    }

    def unsupported(self, cell: Cell) -> str | None:
        return _MIXTURES if cell.mixture and len(set(cell.shapes)) > 1 else None

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        global _make
        _make = make
        how: dict[str, Any] = {"chunk_bytes": "64MB" if layout.size == Layout.size else layout.size}
        if layout.shard:
            how = {"chunk_size": layout.shard}
        elif layout.tokens_loader:
            how = {"chunk_size": layout.size // (2 * _WIDTH) * _WIDTH, "item_loader": item_loader.TokensLoader()}
        litdata.optimize(
            fn=_tokens_of if layout.tokens_loader else _sample_of,
            inputs=list(ids),
            output_dir=str(directory),
            num_workers=layout.workers,
            compression=layout.compression,
            start_method="fork",
            verbose=False,
            **how,
        )

    def _dataset(self, reading: Reading) -> Any:
        how: dict[str, Any] = {"shuffle": True, "seed": reading.seed, "max_cache_size": "100GB"}
        if reading.tokens_loader:
            how["item_loader"] = item_loader.TokensLoader(block_size=_WIDTH)
        elif reading.kind == "images":
            how["batch_decode"] = 1  # else it decodes windows of samples, many times each if not read in order
        if reading.cache:
            downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # its own S3 client insists on TLS otherwise
            how |= {"cache_dir": reading.cache, "storage_options": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}}
        kind = decoding(litdata.StreamingDataset, reading.size) if reading.decoded else litdata.StreamingDataset
        parts = [kind(source, drop_last=False, **how) for source in reading.sources]
        if not reading.weights:
            return parts[0]
        how = {"seed": reading.seed, "weights": reading.weights, "iterate_over_all": False}
        return litdata.CombinedStreamingDataset(parts, **how)

    def random(self, reading: Reading) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        dataset = litdata.StreamingDataset(reading.source, max_cache_size="100GB", batch_decode=1)
        return dataset.__getitem__, lambda numbers: [dataset[number] for number in numbers]

    def loader(self, reading: Reading) -> Any:
        if reading.leg:
            torch.distributed.init_process_group("gloo")
        how: dict[str, Any] = {"num_workers": reading.workers, "drop_last": False}
        if reading.views:
            how["collate_fn"] = columns_of  # its own refuses memoryviews
        elif reading.kind == "images" and not reading.decoded:
            how["collate_fn"] = _images_of
        return litdata.StreamingDataLoader(self._dataset(reading), batch_size=reading.batch_size, **how)


def _sample_of(number: int) -> Any:
    return _make(number)


def _tokens_of(number: int) -> Iterator[Any]:
    yield torch.from_numpy(_make(number)["tokens"])


def _images_of(samples: list[Any]) -> Any:
    """Copies memoryviews of its chunks, which cannot go to another process: a batch has bytes, as the others' do."""
    return columns_of([{"image": bytes(sample["image"]), "label": sample["label"]} for sample in samples])


PEER = LitData()
