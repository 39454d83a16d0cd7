"""Supervised fine-tuning with TRL's SFTTrainer.

python examples/data.py write DATA
torchrun --nproc-per-node 2 examples/trl_sft.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 4 examples/trl_sft.py DATA RUN  # it continues, on any number that divides 32
python examples/data.py count RUN
"""

import gc
import os
import sys
from typing import Any

import numpy as np
import torch
from data import EPOCHS, TOKENS, record
from datasets import Dataset
from huggingface_trainer import GLOBAL_BATCH, SAVE, LoaderState
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from mdsx.torch import StreamingDataLoader, StreamingDataset

PROMPT = 4  # tokens that are not learned


class StreamingSFTTrainer(SFTTrainer):
    """An SFTTrainer that reads a StreamingDataLoader as it is."""

    def __init__(self, *, loader: StreamingDataLoader, **more: Any) -> None:
        # It wants a dataset of its own kind and looks at the first sample; it trains on the loader's batches.
        looked_at = Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]})
        super().__init__(train_dataset=looked_at, **more)
        self.loader = loader
        self.add_callback(LoaderState(loader))

    def get_train_dataloader(self) -> StreamingDataLoader:
        return self.loader


class Example(StreamingSFTTrainer):
    def compute_loss(self, model: Any, inputs: dict[str, Any], *more: Any, **named: Any) -> Any:
        record(self.args.output_dir, self.state.global_step + 1, inputs.pop("id"))
        return super().compute_loss(model, inputs, *more, **named)


def with_labels(sample: dict[str, Any]) -> dict[str, Any]:
    """Return what SFTTrainer's own preparation would: token numbers, and labels with -100 for the prompt."""
    tokens, labels = sample["tokens"], sample["tokens"].copy()
    labels[:PROMPT] = -100
    return {"id": sample["id"], "input_ids": tokens, "labels": labels, "attention_mask": np.ones_like(tokens)}


def main(data: str, run: str) -> None:
    batch = GLOBAL_BATCH // int(os.environ.get("WORLD_SIZE", "1"))
    arguments = SFTConfig(
        run,
        per_device_train_batch_size=batch,
        num_train_epochs=EPOCHS,
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
    loader = StreamingDataLoader(StreamingDataset(data, transform=with_labels), batch, drop_last=False)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=TOKENS, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    words = WordLevel({f"<{number}>": number for number in range(TOKENS)}, "<0>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), eos_token="<0>", pad_token="<0>")
    trainer = Example(loader=loader, model=model, args=arguments, processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run) if os.path.isdir(run) else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/loaders.md
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
