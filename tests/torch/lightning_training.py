"""A training under Lightning, run by the tests on several processes.

Each rank appends the samples of every step to FOLDER/<rank>.log. It saves a checkpoint after every step, and
resumes from an existing one. Before step STEPS each rank kills itself (-1: never).
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from mdsx.torch import StreamingDataLoader, StreamingDataset


class Recount(pl.Callback):
    """Correct Lightning's count of batches after a resume with another global batch size."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        loops = checkpoint["loops"]["fit_loop"]
        batches = loops["epoch_loop.batch_progress"]["current"]
        if batches["ready"]:
            (state,) = loops["state_dict"]["combined_loader"]
            self.loader.load_state_dict(state)
            done = len(self.loader) - (self.loader.remaining if state["position"] else 0)  # at 0 the epoch was over
            completed = done - (batches["ready"] - batches["completed"])
            batches.update(ready=done, started=done, processed=done, completed=completed)


class Model(pl.LightningModule):
    def __init__(self, folder: Path, last_step: int) -> None:
        super().__init__()
        self.last_step = last_step
        self.layer = torch.nn.Linear(8, 1)
        self.folder = folder

    def on_train_batch_start(self, batch: Any, number: int) -> None:
        if self.global_step == self.last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        self.log_samples("", batch)
        return self.layer(batch["tokens"].float()).sum() / 100  # type: ignore[no-any-return]

    def validation_step(self, batch: dict[str, Any], number: int) -> None:
        if not self.trainer.sanity_checking:
            self.log_samples("valid-", batch)

    def log_samples(self, kind: str, batch: dict[str, Any]) -> None:
        with (self.folder / f"{kind}{self.global_rank}.log").open("a") as log:
            log.write(json.dumps([self.current_epoch, batch["id"].tolist()]) + "\n")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.001)


def train(url: str, folder: Path, devices: int, batch_size: int, steps: int, epochs: int) -> None:
    warnings.simplefilter("ignore")
    loader = StreamingDataLoader(StreamingDataset(url, seed=4), batch_size, drop_last=False)  # before there are ranks
    valid = StreamingDataLoader(StreamingDataset(url, shuffle=False), 64, drop_last=False)
    checkpoint = folder / "saved.ckpt"
    save = ModelCheckpoint(folder, "saved", every_n_train_steps=1, enable_version_counter=False)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        logger=False,
        callbacks=[save, Recount(loader)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(folder, steps), loader, valid, ckpt_path=str(checkpoint) if checkpoint.exists() else None)
