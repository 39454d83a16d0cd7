"""Supervised fine-tuning on packed rows with TRL's SFTTrainer.

python examples/pretraining.py write DATA
torchrun --nproc-per-node 2 examples/trl_sft.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/trl_sft.py DATA RUN  # it continues, on any number of ranks
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from data import record
from datasets import Dataset
from huggingface_trainer import LOCAL, SAVE, STEPS, LoaderState, micro_batches, tiny_model
from pretraining import TOKENS, dataset, ids, plan
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from mdsx.torch import StreamingDataLoader

PROMPT = 4  # tokens that are not learned


class PackedSFTTrainer(SFTTrainer):
    """An SFTTrainer that reads the packed rows of a StreamingDataLoader."""

    def __init__(self, *, loader: StreamingDataLoader, **more: Any) -> None:
        # It wants a dataset of its own kind and looks at the first sample; it trains on the loader's batches.
        looked_at = Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]})
        super().__init__(train_dataset=looked_at, **more)
        self.loader = loader
        self.add_callback(LoaderState(loader))

    def get_train_dataloader(self) -> StreamingDataLoader:
        return self.loader

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        return super().get_batch_samples(map(completions, epoch_iterator), num_batches, device)


def completions(batch: dict[str, Any]) -> dict[str, Any]:
    """Return what SFTTrainer takes, without labels for the prompt at the start of each sample."""
    labels = batch["labels"].masked_fill(batch["position_ids"] < PROMPT - 1, -100)
    return {
        "id": batch["id"],  # for the record of the example
        "input_ids": batch["tokens"],
        "position_ids": batch["position_ids"].long(),
        "labels": labels,
        "shift_labels": labels,  # mdsx has shifted them already
    }


class Example(PackedSFTTrainer):
    def compute_loss(self, model: Any, inputs: dict[str, Any], *more: Any, **named: Any) -> Any:
        record(self.args.output_dir, self.state.global_step + 1, ids([{"id": inputs.pop("id")}]))
        return super().compute_loss(model, inputs, *more, **named)


def main(data: str, run: str) -> None:
    arguments = SFTConfig(
        run,
        per_device_train_batch_size=LOCAL,
        gradient_accumulation_steps=micro_batches(int(os.environ.get("WORLD_SIZE", "1"))),
        max_steps=STEPS,
        dataset_kwargs={"skip_prepare_dataset": True},  # the samples are tokens already
        ignore_data_skip=True,  # the loader's state skips
        save_steps=SAVE,
        save_total_limit=2,
        learning_rate=0.01,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        bf16=False,
    )
    # whole samples: a row with a piece of one would take the piece's start for a prompt
    loader = StreamingDataLoader(dataset(data), plan=plan("pack", steady=True), epoch_steps=100)
    words = WordLevel({f"<{number}>": number for number in range(TOKENS)}, "<0>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), eos_token="<0>", pad_token="<0>")
    trainer = Example(loader=loader, model=tiny_model(), args=arguments, processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run) if os.path.isdir(run) else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
