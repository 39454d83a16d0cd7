"""A training under Lightning, with a validation.

It appends the samples of every step to FOLDER/0.log, saves a checkpoint after every step, and resumes from an existing
one.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.examples.runs import EXAMPLES


class Model(pl.LightningModule):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.folder = folder

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


def train(url: str, folder: Path, batch_size: int, epochs: int) -> None:
    sys.path.append(str(EXAMPLES))
    recount: Any = importlib.import_module("lightning_trainer")
    warnings.simplefilter("ignore")
    loader = StreamingDataLoader(StreamingDataset(url, seed=4), batch_size, drop_last=False)
    valid = StreamingDataLoader(StreamingDataset(url, shuffle=False), 64, drop_last=False)
    checkpoint = folder / "saved.ckpt"
    save = ModelCheckpoint(folder, "saved", every_n_train_steps=1, enable_version_counter=False)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[save, recount.Recount(loader)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(folder), loader, valid, ckpt_path=str(checkpoint) if checkpoint.exists() else None)
