"""A training with Lightning's Trainer (also as `import lightning.pytorch as pl`).

python examples/data.py write DATA
torchrun --nproc-per-node 2 examples/lightning_trainer.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/lightning_trainer.py DATA RUN  # it continues, on any number of ranks
python examples/data.py count RUN
"""

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from data import EPOCHS, TOKENS, record

from mdsx.torch import StreamingDataLoader, StreamingDataset

BATCH, SAVE = 16, 5  # samples per rank; steps between checkpoints


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
    def __init__(self, run: str) -> None:
        super().__init__()
        self.run = run
        self.layers = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 16), torch.nn.Linear(16, TOKENS))

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        record(self.run, self.global_step + 1, batch["id"])
        logits = self.layers(batch["tokens"][:, :-1]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, batch["tokens"][:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(data: str, run: str) -> None:
    loader = StreamingDataLoader(StreamingDataset(data, columns=["id", "tokens"]), BATCH, drop_last=False)
    save = pl.callbacks.ModelCheckpoint(run, "latest", every_n_train_steps=SAVE, enable_version_counter=False)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        callbacks=[save, Recount(loader)],
        logger=False,
        enable_progress_bar=False,
    )
    checkpoint = Path(run) / "latest.ckpt"
    trainer.fit(Model(run), loader, ckpt_path=checkpoint if checkpoint.exists() else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
