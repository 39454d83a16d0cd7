"""Megatron-Energon: the tars of WebDataset's ShardWriter, indexed by `energon prepare`; crude samples, no decoder.

A task encoder decodes the members when they make a batch, and packs samples first fit among 100. With `repeat=False` an
epoch is one pass; a mixture repeats for ever, and its epoch has a `virtual_epoch_length`. The matrix shuffles as its
quickstart does, in sequences and a buffer of 100 samples, and saves each rank's `save_state_rank`. Benchmarks read
whole shards, one at a time, into a buffer of 1,000 (100 images), by the loader without a state: this takes half of the
processor time. Errors are raised (`reraise_exception`): by default it logs them and leaves the samples out. It reads S3
through its Multi-Storage Client, with a cache that checks each object's version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tools.account import Id
from tools.conformance.matrix import CAPACITY, PART, Cell
from tools.conformance.task import row_of
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.peers.webdataset import PEER as WEBDATASET
from tools.peers.webdataset import values_of
from tools.workloads import columns_of, decode

energon, prepare = Lazy("megatron.energon"), Lazy("megatron.energon.tools.prepare")
torch_data = Lazy("torch.utils.data")
_PREPARE = (
    *("--non-interactive", "--no-progress", "--force-overwrite", "--num-workers", "2"),
    *("--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset"),
)
_PACKED_FROM = 100  # samples
_SHUFFLED = {"max_samples_per_sequence": 100, "shuffle_buffer_size": 100}
_FAST = {"max_samples_per_sequence": None, "parallel_shard_iters": 1}
_BUFFERS = {"images": 100}  # samples; of others 1,000
_SAME_WORKERS = (
    '"The product `world_size * num_workers` must stay the same across runs" (its documentation, Reproducible Scaling)'
)
_LARGER_BATCH = '"Resuming with larger micro batch size is not allowed" (savable_loader.py)'
_OTHER_BATCH = (
    '"Resuming with smaller micro batch size only allowed if the old micro batch size is a multiple of the new one" '
    "(savable_loader.py)"
)


class _Loader(Loader):
    """Counts its batches: a state after an epoch's last batch continues with the next epoch."""

    _taken = 0

    def resume(self, states: list[Any]) -> None:
        self.epoch, self._taken, state = states[self._task.rank]
        self._loader.restore_state_rank(state)

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        self.epoch = epoch
        rows = self._packed_rows() if self._task.packed else super().batches(epoch)
        for batch in rows:
            self._taken += 1
            yield batch
        self.epoch, self._taken = epoch + 1, 0

    def _packed_rows(self) -> Iterator[Sequence[Id]]:
        for batch in self._loader:
            yield [row_of((each["id"] for each in row), (each["text"] for each in row)) for row in batch]

    def state(self) -> Any:
        state = self._loader.save_state_rank()
        if not self._task.packed and self._taken == len(self._loader):
            return self.epoch + 1, 0, state
        return self.epoch, self._taken, state


class Energon(Peer):
    name = environment = "energon"
    title = "Energon"
    remote = True
    best_workers = 2
    packages = ("megatron-energon", "multi-storage-client")
    imports = ("megatron.energon", "megatron.energon.tools.prepare")
    rank_loader = _Loader
    packs = True
    no_phases = (
        '"When restoring, the dataloader and dataset must be instantiated with the exactly same parameters." '
        "(SavableDataLoader)"
    )
    findings: ClassVar[Mapping[str, str]] = {
        "uneven-resume": (
            "The epoch that was killed continues exactly. It was killed between its two workers' batches, and the next "
            "epoch then begins with the second worker: its batches come in pairs that are exchanged."
        ),
        "few-resume": (
            "A worker that was done with the epoch when it was killed begins its next pass when it is resumed, so that "
            "its samples come again."
        ),
    }

    def unsupported(self, cell: Cell) -> str | None:
        if len({shape.world * shape.workers for shape in cell.shapes}) > 1:
            return _SAME_WORKERS
        first, *others = (shape.batch for shape in cell.shapes)
        if any(batch > first for batch in others):
            return _LARGER_BATCH
        return _OTHER_BATCH if any(first % batch for batch in others) else super().unsupported(cell)

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        WEBDATASET.write(directory, kind, ids, make, layout)
        prepare.command.main([*_PREPARE, str(directory)], standalone_mode=False)

    def shards(self, directory: Path) -> list[Path]:
        return sorted(directory.glob("*.tar"))

    def loader(self, reading: Reading) -> Any:
        leg = reading.leg
        rank, world = (leg.rank, leg.shape.world) if leg else (0, 1)
        config = energon.WorkerConfig(
            rank=rank,
            world_size=world,
            num_workers=reading.workers,
            seed_offset=reading.seed,
            global_error_handler=energon.reraise_exception,
        )
        how: dict[str, Any] = {"repeat": False}
        if leg and reading.weights:
            samples = sum(data.samples for data in leg.data)
            how = {"virtual_epoch_length": -(-samples // leg.shape.global_batch)}
        if reading.packed or (leg and leg.packed):
            how["packing_buffer_size"] = _PACKED_FROM
        fast = {**_FAST, "shuffle_buffer_size": _BUFFERS.get(reading.kind, 1000)}
        dataset = energon.get_train_dataset(
            _source(reading),
            worker_config=config,
            batch_size=reading.batch_size,
            batch_drop_last=bool(reading.packed),
            task_encoder=_encoder(reading),
            **(_SHUFFLED if leg else fast),
            **how,
        )
        return energon.get_savable_loader(dataset) if leg else energon.get_loader(dataset)


def _encoder(reading: Reading) -> Any:
    packed, rows = reading.packed, reading.leg is not None and reading.leg.packed
    base: Any = energon.TaskEncoder

    class Encoder(base):  # type: ignore[misc]  # it is imported late
        decoder = None
        cookers = (energon.Cooker(energon.stateless(_as_it_is)),)

        def batch(self, samples: list[Any]) -> Any:
            if rows:
                return samples
            if packed:
                return {name: np.stack([row[name] for row in samples]) for name in samples[0]}
            if reading.decoded:
                return torch_data.default_collate([decode(values_of(sample), reading.size) for sample in samples])
            return columns_of([values_of(sample) for sample in samples])

        def select_samples_to_pack(self, samples: list[Any]) -> list[list[Any]]:
            return _first_fit(samples, "text", CAPACITY) if rows else _first_fit(samples, "tokens", 2 * packed)

        def pack_selected_samples(self, samples: list[Any]) -> Any:
            values = [values_of(sample) for sample in samples]
            return values if rows else _row_of([each["tokens"] for each in values], packed)

    energon.stateless(Encoder.pack_selected_samples)
    return Encoder()


def _as_it_is(sample: Any) -> Any:
    return sample


def _first_fit(samples: list[Any], member: str, room: int) -> list[list[Any]]:
    """Group samples into rows with `room` bytes of a member."""
    rows: list[list[Any]] = []
    left: list[int] = []
    for sample in samples:
        size = len(sample[member])
        at = next((at for at, free in enumerate(left) if free >= size), None)
        if at is None:
            rows.append([sample])
            left.append(room - size)
        else:
            rows[at].append(sample)
            left[at] -= size
    return rows


def _row_of(texts: list[NDArray[np.uint16]], width: int) -> dict[str, Any]:
    row = {"tokens": np.zeros(width, np.uint16)}
    row |= {name: np.zeros(width, np.int32) for name in ("segments", "positions")}
    at = 0
    for number, text in enumerate(texts, 1):
        here = slice(at, at + len(text))
        row["tokens"][here], row["segments"][here], row["positions"][here] = text, number, np.arange(len(text))
        at += len(text)
    return row


def _source(reading: Reading) -> str:
    """A dataset, or the file of a metadataset: a blend, or a part of a dataset."""
    leg = reading.leg
    if reading.cache:
        return _remote(reading.source, reading.cache)
    if leg is None or not (reading.weights or leg.part):
        return reading.source
    train: dict[str, Any] = {"path": reading.source, "subset": {"range": PART}}
    if reading.weights:
        pairs = zip(reading.sources, reading.weights, strict=True)
        train = {"blend": [{"path": source, "weight": weight} for source, weight in pairs]}
    whole = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": train}}
    file = Path(leg.directory, f"metadataset{leg.rank}.yaml")
    file.write_text(json.dumps(whole))
    return str(file)


def _remote(url: str, cache: str) -> str:
    """Write the settings of its storage client, which asks boto3's environment for the rest."""
    store = {"storage_provider": {"type": "s3", "options": {"base_path": ""}}, "caching_enabled": True}
    cached = {"size": "100G", "location": cache, "check_source_version": True}
    file = Path(f"{cache}.json")
    file.write_text(json.dumps({"profiles": {"store": store}, "cache": cached}))
    os.environ["MSC_CONFIG"] = str(file)
    return url.replace("s3://", "msc://store/", 1)


PEER = Energon()
