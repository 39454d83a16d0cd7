"""Every way in which a framework may read a dataset, in training and in evaluation: one rank of a job.

A way is a function from the dataset's URL to the numbers of the samples that this rank trained on, or that its
evaluation has from all ranks.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torchmetrics
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import distributed
from torch.utils.data import ChainDataset, ConcatDataset, DataLoader, DistributedSampler, Subset, random_split

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset, collate

B = 16
TIMEOUT = 100
_FORK = multiprocessing.get_context("fork")
Numbers = list[int]


class Outcome(NamedTuple):
    """What a rank has seen, or the error that it got."""

    numbers: Numbers
    error: str


def data(url: str, **options: Any) -> StreamingDataset:
    return StreamingDataset(url, columns=["id"], **options)


def valid(url: str, **options: Any) -> StreamingDataLoader:
    return StreamingDataLoader(data(url, shuffle=False), B, drop_last=False, **options)


def whole(url: str) -> mdsx.Dataset:
    return mdsx.Dataset(url, columns=["id"])


def read(loader: Any) -> Numbers:
    return [number for batch in loader for number in batch["id"].tolist()]


# --- loops of one's own


def plain(make: Callable[[str], Any]) -> Callable[[str], Numbers]:
    """A loop over what `make` returns, on ranks of torch.distributed."""

    def run(url: str) -> Numbers:
        distributed.init_process_group("gloo")
        return read(make(url))

    return run


def sampled(url: str, **options: Any) -> Any:
    return DataLoader(whole(url), B, sampler=DistributedSampler(whole(url), **options))  # type: ignore[arg-type]


def gathered(url: str) -> Numbers:
    """all_gather, and what the mask selects."""
    distributed.init_process_group("gloo")
    found = Numbers()
    for batch in valid(url, uneven="repeat"):
        parts = []
        for name in ("id", "valid"):
            parts.append([torch.empty_like(batch[name]) for _ in range(distributed.get_world_size())])
            distributed.all_gather(parts[-1], batch[name])
        ids, mask = map(torch.cat, parts)
        found += ids[mask].tolist()
    return found


def gathered_objects(url: str) -> Numbers:
    """all_gather_object, with shares of different sizes."""
    distributed.init_process_group("gloo")
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, read(valid(url)))
    return [number for numbers in everyone for number in numbers]


def measured(url: str) -> Numbers:
    """A metric of torchmetrics, which gathers by itself."""
    distributed.init_process_group("gloo")
    metric = torchmetrics.CatMetric()
    for batch in valid(url):
        metric.update(batch["id"].double())
    return [int(number) for number in torch.as_tensor(metric.compute()).tolist()]


# --- Accelerate


def accelerated(make: Callable[[str], Any], *, gather: bool = False, **options: Any) -> Callable[[str], Numbers]:
    """A loop over what `prepare` makes of a loader; `gather`: an evaluation with gather_for_metrics."""

    def run(url: str) -> Numbers:
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
        loader = accelerator.prepare(make(url))
        if not gather:
            return read(loader)
        return [number for batch in loader for number in accelerator.gather_for_metrics(batch["id"]).tolist()]

    return run


def accelerate_gathers(url: str) -> Numbers:
    accelerator, found = Accelerator(cpu=True), Numbers()
    for batch in valid(url, uneven="repeat"):
        numbers, mask = accelerator.gather((batch["id"], batch["valid"]))
        found += numbers[mask].tolist()
    return found


def accelerate_gathers_objects(url: str) -> Numbers:
    accelerator = Accelerator(cpu=True)
    found: Numbers = accelerator.gather_for_metrics(read(valid(url)), use_gather_object=True)
    return found


# --- Lightning


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.numbers = Numbers()

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        self.numbers += batch["id"].tolist()
        return self.layer(batch["id"].float()[:, None]).sum() * 0  # type: ignore[no-any-return]

    def validation_step(self, batch: dict[str, Any], number: int) -> None:
        if "valid" in batch:
            ids, mask = self.all_gather((batch["id"], batch["valid"]))
            self.numbers += ids.flatten()[mask.flatten()].tolist()
        else:
            self.numbers += batch["id"].tolist()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.001)


def lightning(make: Callable[[str], Any], *, train: bool) -> Callable[[str], Numbers]:
    def run(url: str) -> Numbers:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=int(os.environ["WORLD_SIZE"]),
            strategy="ddp",
            use_distributed_sampler=True,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module()
        if train:
            trainer.fit(module, make(url))
        else:
            trainer.validate(module, make(url), verbose=False)
        return module.numbers

    return run


# --- Hugging Face's Trainer


def trainer(
    *, train: Callable[[str], Any] | None = None, evaluate: Callable[[str], Any] | None = None, **options: Any
) -> Callable[[str], Numbers]:
    """Trainer with a dataset, or with a loader from its methods."""

    def run(url: str) -> Numbers:
        transformers: Any = importlib.import_module("transformers")  # in an environment of its own

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def forward(self, id: Any, labels: Any = None, valid: Any = None) -> Any:
                return {"loss": self.layer(id.float()[:, None]).sum() * 0, "logits": id[:, None]}

        seen = Numbers()

        class Recording(transformers.Trainer):  # type: ignore[misc]
            def compute_loss(self, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
                if model.training:
                    seen.extend(inputs["id"].tolist())
                return super().compute_loss(model, inputs, *more, **options)

            def get_train_dataloader(self) -> Any:
                return given if isinstance(given, StreamingDataLoader) else super().get_train_dataloader()

            def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
                return given if isinstance(given, StreamingDataLoader) else super().get_eval_dataloader(eval_dataset)

        given: Any = (train or evaluate or data)(url)
        masked = isinstance(given, StreamingDataLoader) and given._reading.spec.uneven == "repeat"
        arguments = transformers.TrainingArguments(
            os.environ["OUT"],
            per_device_train_batch_size=B,
            per_device_eval_batch_size=B,
            num_train_epochs=1,
            label_names=["id", "valid"] if masked else ["id"],
            remove_unused_columns=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **options,
        )

        def take(found: Any) -> dict[str, Any]:
            ids, mask = found.label_ids if masked else (found.label_ids, slice(None))
            seen.extend(ids[mask].tolist())
            return {}

        made: Any = Recording(
            model=Model(),
            args=arguments,
            data_collator=collate,
            compute_metrics=take,
            **{
                "train_dataset" if train else "eval_dataset": given
                if not isinstance(given, StreamingDataLoader)
                else None
            },
        )
        if train:
            made.train()
        else:
            made.evaluate(given.dataset if isinstance(given, StreamingDataLoader) else None)
        return seen

    return run


# --- the table


def single(url: str) -> Any:
    return DataLoader(data(url), B)


def batched(url: str, **options: Any) -> Any:
    return DataLoader(data(url, batch_size=B, drop_last=False, **options), batch_size=None)


def undivided(url: str, **options: Any) -> Any:
    return DataLoader(data(url, rank=0, world_size=1), B, **options)


def by_number(url: str) -> Any:
    dataset: Any = whole(url)
    return DataLoader(dataset, B, collate_fn=collate)


WAYS: dict[str, Callable[[str], Numbers]] = {
    "StreamingDataLoader": plain(valid),
    "DataLoader(StreamingDataset(url), 16)": plain(single),
    "DataLoader(StreamingDataset(url, batch_size=16), batch_size=None)": plain(batched),
    "Subset": plain(lambda url: DataLoader(Subset(data(url), range(500)), B)),
    "random_split": plain(lambda url: DataLoader(random_split(data(url), [0.5, 0.5])[0], B)),
    "ConcatDataset": plain(lambda url: DataLoader(ConcatDataset([data(url)]), B)),
    "ChainDataset": plain(lambda url: DataLoader(ChainDataset([data(url)]), B)),
    "ChainDataset, batch_size=16": plain(
        lambda url: DataLoader(ChainDataset([data(url, batch_size=B, drop_last=False)]), batch_size=None)
    ),
    "Dataset, DistributedSampler": plain(sampled),
    "Dataset, DistributedSampler, drop_last": plain(lambda url: sampled(url, drop_last=True)),
    "Accelerate: StreamingDataLoader": accelerated(valid),
    "Accelerate: single samples": accelerated(single),
    "Accelerate: single samples, not dispatched": accelerated(single, dispatch_batches=False),
    "Accelerate: batch_size=16": accelerated(batched),
    "Accelerate: batch_size=16, not dispatched": accelerated(batched, dispatch_batches=False),
    "Accelerate: rank=0, world_size=1": accelerated(undivided),
    "Accelerate: rank=0, world_size=1, drop_last": accelerated(lambda url: undivided(url, drop_last=True)),
    "Accelerate: rank=0, world_size=1, not dispatched": accelerated(undivided, dispatch_batches=False),
    "Accelerate: rank=0, world_size=1, not dispatched, drop_last": accelerated(
        lambda url: undivided(url, drop_last=True), dispatch_batches=False
    ),
    "Accelerate: Dataset": accelerated(by_number),
    "Accelerate: Dataset, even_batches=False": accelerated(by_number, even_batches=False),
    "Lightning: StreamingDataLoader": lightning(valid, train=True),
    "Lightning: single samples": lightning(single, train=True),
    "Lightning: batch_size=16": lightning(batched, train=True),
    "Lightning: Dataset": lightning(by_number, train=True),
    "Trainer: StreamingDataLoader": trainer(train=valid),
    "Trainer: single samples": trainer(train=data),
    "Trainer: batch_size=16": trainer(train=lambda url: data(url, batch_size=B)),
    "Trainer: rank=0, world_size=1": trainer(train=lambda url: data(url, rank=0, world_size=1)),
    "Trainer: rank=0, world_size=1, epoch_samples=1002": trainer(
        train=lambda url: data(url, rank=0, world_size=1, epoch_samples=1002)
    ),
    "Trainer: Dataset": trainer(train=whole),
}
"""Trainings: each rank's samples."""

EVALUATIONS: dict[str, Callable[[str], Numbers]] = {
    "all_gather and mask": gathered,
    "all_gather_object": gathered_objects,
    "torchmetrics": measured,
    "Accelerate: gather and mask": accelerate_gathers,
    "Accelerate: gather_for_metrics of objects": accelerate_gathers_objects,
    "Accelerate: Dataset, gather_for_metrics": accelerated(by_number, gather=True),
    "Accelerate: single samples, gather_for_metrics": accelerated(single, gather=True),
    "Accelerate: rank=0, world_size=1, gather_for_metrics": accelerated(undivided, gather=True),
    "Accelerate: rank=0, world_size=1, not dispatched, gather_for_metrics": accelerated(
        undivided, gather=True, dispatch_batches=False
    ),
    "Lightning: StreamingDataLoader, all_gather and mask": lightning(
        lambda url: valid(url, uneven="repeat"), train=False
    ),
    "Trainer: Dataset": trainer(evaluate=whole),
    "Trainer: single samples": trainer(evaluate=lambda url: data(url, shuffle=False)),
    "Trainer: rank=0, world_size=1": trainer(evaluate=lambda url: data(url, shuffle=False, rank=0, world_size=1)),
    "Trainer: StreamingDataLoader": trainer(evaluate=valid),
    "Trainer: StreamingDataLoader and mask": trainer(evaluate=lambda url: valid(url, uneven="repeat")),
}
"""Evaluations: the samples of all ranks, on each rank."""

VALIDATIONS: dict[str, Callable[[str], Numbers]] = {
    "Lightning: StreamingDataLoader": lightning(valid, train=False),
    "Lightning: single samples": lightning(single, train=False),
    "Lightning: Dataset": lightning(by_number, train=False),
}
"""Evaluations that gather nothing: each rank's samples."""


def run_all(ways: str, url: str, folder: Path, ranks: int, packages: str, only: str = "") -> dict[str, list[Outcome]]:
    """Run each way of a table on ranks that this process forks; return what each rank has."""
    sys.path.insert(0, packages)
    importlib.import_module("transformers.trainer")  # once for all ranks

    torch.set_num_threads(1)
    table: dict[str, Callable[[str], Numbers]] = globals()[ways]
    return {name: _run(way, url, folder, ranks) for name, way in table.items() if only in name}


def _run(way: Callable[[str], Numbers], url: str, folder: Path, ranks: int) -> list[Outcome]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "none", "OMP_NUM_THREADS": 1, "OUT": folder}
    files = [folder / f"{rank}.json" for rank in range(ranks)]
    for file in files:
        file.unlink(missing_ok=True)
    processes = [
        _FORK.Process(target=_rank, args=(way, url, {**shared, "RANK": rank, "LOCAL_RANK": rank}, files[rank]))
        for rank in range(ranks)
    ]
    try:
        for process in processes:
            process.start()
        deadline = time.monotonic() + TIMEOUT
        while any(process.exitcode is None for process in processes):
            processes[0].join(0.05)
            if any(process.exitcode not in (None, 0) for process in processes) and deadline > time.monotonic() + 5:
                deadline = time.monotonic() + 5  # the others may have the same error, or wait for this one
            if time.monotonic() > deadline:
                break
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [
        Outcome(*json.loads(file.read_text())) if file.exists() else Outcome([], f"ended with {process.exitcode}")
        for file, process in zip(files, processes, strict=True)
    ]


def _rank(way: Callable[[str], Numbers], url: str, environment: dict[str, Any], out: Path) -> None:
    os.environ.update({name: str(value) for name, value in environment.items()})
    log = os.open(out.with_suffix(".log"), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        outcome = Outcome(way(url), "")
    except Exception as error:
        while isinstance(error.__context__, Exception) and not isinstance(error, mdsx.MdsxError):
            error = error.__context__  # Lightning's, which says less
        outcome = Outcome([], f"{type(error).__name__}: {error}")
    new = out.with_suffix(".new")
    new.write_text(json.dumps(outcome))
    new.replace(out)
    if not outcome.error and distributed.is_initialized():
        distributed.barrier()  # no rank ends while another one still gathers
    os._exit(1 if outcome.error else 0)  # without the end of a process group: see docs/trainers.md
