"""A training with MosaicML's Composer.

python examples/data.py write DATA
torchrun --nproc-per-node 2 examples/composer_trainer.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/composer_trainer.py DATA RUN  # it continues, on any number of ranks
python examples/data.py count RUN
"""

import gc
import os
import sys
from typing import Any

import torch
from composer import Callback, ComposerModel, Logger, State, Trainer
from data import EPOCHS, TOKENS, record

from mdsx.torch import StreamingDataLoader, StreamingDataset

BATCH, SAVE = 16, 4  # samples per rank; steps between checkpoints


class LoaderState(Callback):
    """Keep the loader's state in the trainer's checkpoints."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)

    def fit_start(self, state: State, logger: Logger) -> None:
        if self.loader.epoch > int(state.timestamp.epoch):  # the checkpoint is of the last batch of an epoch
            state.timestamp = state.timestamp.to_next_epoch()


class Record(Callback):
    """Note what each step trains on."""

    def __init__(self, run: str) -> None:
        self.run = run

    def batch_start(self, state: State, logger: Logger) -> None:
        record(self.run, int(state.timestamp.batch) + 1, state.batch["id"])


class Model(ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 16), torch.nn.Linear(16, TOKENS))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.layers(batch["tokens"][:, :-1])

    def loss(self, outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), batch["tokens"][:, 1:].flatten())


def main(data: str, run: str) -> None:
    os.environ.setdefault("NODE_RANK", os.environ.get("GROUP_RANK", "0"))  # Composer needs it; torchrun lacks it
    loader = StreamingDataLoader(StreamingDataset(data, columns=["id", "tokens"]), BATCH, drop_last=False)
    model = Model()
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.Adam(model.parameters(), lr=0.01),
        train_dataloader=loader,
        spin_dataloaders=False,
        max_duration=f"{EPOCHS}ep",
        callbacks=[LoaderState(loader), Record(run)],
        run_name="run",
        save_folder=f"{run}/checkpoints",
        save_interval=f"{SAVE}ba",
        save_overwrite=True,
        autoresume=True,
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
