"""Pretraining on packed rows with Hugging Face's Trainer: a plan that changes the sources.

python examples/pretraining.py write DATA
torchrun --nproc-per-node 2 examples/huggingface_trainer.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/huggingface_trainer.py DATA RUN  # it continues, on any number of ranks
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from data import record
from pretraining import TOKENS, dataset, ids, plan
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint

from mdsx.torch import StreamingDataLoader

GLOBAL, LOCAL, STEPS, SAVE = 8, 2, 140, 10  # rows of a step, of a micro-batch; steps; steps between checkpoints


class LoaderState(TrainerCallback, ExportableState):
    """Keep the loader's state in the trainer's checkpoints, in trainer_state.json."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.loader.state_dict()}

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **more: Any) -> None:
        self.loader.load_state_dict(state.stateful_callbacks["LoaderState"]["attributes"])
        if self.loader.consumed.steps != state.global_step or not args.ignore_data_skip:
            raise ValueError("resume with ignore_data_skip=True, and let each step of the loader be one of the trainer")


class PackedTrainer(Trainer):
    """A Trainer that reads the packed rows of a StreamingDataLoader."""

    def __init__(self, *, loader: StreamingDataLoader, **more: Any) -> None:
        super().__init__(**more)
        self.loader = loader
        self.add_callback(LoaderState(loader))

    def get_train_dataloader(self) -> StreamingDataLoader:
        return self.loader

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        return super().get_batch_samples(map(model_inputs, epoch_iterator), num_batches, device)


def model_inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """Return what a model of Transformers takes. It finds the documents by positions that begin at 0."""
    return {
        "id": batch["id"],  # for the record of the example
        "input_ids": batch["tokens"],
        "position_ids": batch["position_ids"].long(),
        "labels": batch["labels"],
        "shift_labels": batch["labels"],  # mdsx has shifted them already
    }


class Example(PackedTrainer):
    def compute_loss(self, model: Any, inputs: dict[str, Any], *more: Any, **named: Any) -> Any:
        record(self.args.output_dir, self.state.global_step + 1, ids([{"id": inputs.pop("id")}]))
        return super().compute_loss(model, inputs, *more, **named)


def micro_batches(ranks: int) -> int:
    """Return how many micro-batches of a step each rank has."""
    return -(-GLOBAL // (ranks * LOCAL))


def tiny_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=TOKENS, **sizes))


def main(data: str, run: str) -> None:
    arguments = TrainingArguments(
        run,
        per_device_train_batch_size=LOCAL,
        gradient_accumulation_steps=micro_batches(int(os.environ.get("WORLD_SIZE", "1"))),
        max_steps=STEPS,
        ignore_data_skip=True,  # the loader's state skips
        save_steps=SAVE,
        save_total_limit=2,
        learning_rate=0.01,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    loader = StreamingDataLoader(dataset(data), plan=plan(steady=True), epoch_steps=100)
    trainer = Example(loader=loader, model=tiny_model(), args=arguments)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run) if os.path.isdir(run) else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
