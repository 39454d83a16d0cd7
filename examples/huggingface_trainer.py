"""A training with Hugging Face's Trainer.

python examples/data.py write DATA
torchrun --nproc-per-node 2 examples/huggingface_trainer.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 4 examples/huggingface_trainer.py DATA RUN  # it continues, on any number that divides 32
python examples/data.py count RUN
"""

import gc
import os
import sys
from typing import Any

import torch
from data import EPOCHS, TOKENS, record
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint

from mdsx.torch import StreamingDataLoader, StreamingDataset

GLOBAL_BATCH, SAVE = 32, 5  # samples of a step over all ranks; steps between checkpoints


class LoaderState(TrainerCallback, ExportableState):
    """Keep the loader's state in the trainer's checkpoints, in trainer_state.json."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.loader.state_dict()}

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **more: Any) -> None:
        loader, accumulated = self.loader, args.gradient_accumulation_steps
        loader.load_state_dict(state.stateful_callbacks["LoaderState"]["attributes"])
        done = loader.epoch * -(-len(loader) // accumulated) + (len(loader) - loader.remaining) // accumulated
        if done != state.global_step or not args.ignore_data_skip:
            raise ValueError("resume with the same batch size over all ranks, and with ignore_data_skip=True")


class StreamingTrainer(Trainer):
    """A Trainer that reads a StreamingDataLoader as it is."""

    def __init__(self, *, loader: StreamingDataLoader, **more: Any) -> None:
        super().__init__(**more)
        self.loader = loader
        self.add_callback(LoaderState(loader))

    def get_train_dataloader(self) -> StreamingDataLoader:
        return self.loader


class Example(StreamingTrainer):
    def compute_loss(self, model: Any, inputs: dict[str, Any], **more: Any) -> Any:
        record(self.args.output_dir, self.state.global_step + 1, inputs.pop("id"))
        return super().compute_loss(model, inputs, **more)


def main(data: str, run: str) -> None:
    batch = GLOBAL_BATCH // int(os.environ.get("WORLD_SIZE", "1"))
    arguments = TrainingArguments(
        run,
        per_device_train_batch_size=batch,
        num_train_epochs=EPOCHS,
        ignore_data_skip=True,  # the loader's state skips
        save_steps=SAVE,
        save_total_limit=2,
        learning_rate=0.01,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    columns = {"id": "id", "input_ids": "tokens", "labels": "tokens"}
    loader = StreamingDataLoader(StreamingDataset(data, columns=columns), batch, drop_last=False)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=TOKENS, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    trainer = Example(loader=loader, model=model, args=arguments)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run) if os.path.isdir(run) else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/loaders.md
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
