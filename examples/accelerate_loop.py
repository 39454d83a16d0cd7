"""A training loop with Hugging Face Accelerate.

python examples/data.py write DATA
torchrun --nproc-per-node 2 examples/accelerate_loop.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/accelerate_loop.py DATA RUN  # it continues, on any number of ranks
python examples/data.py count RUN
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from data import EPOCHS, TOKENS, latest, publish, record

from mdsx.torch import StreamingDataLoader, StreamingDataset

BATCH, SAVE = 16, 5  # samples per rank; steps between checkpoints


class Steps:
    """The number of steps, which Accelerate does not keep."""

    done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def main(data: str, run: str) -> None:
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    loader = StreamingDataLoader(StreamingDataset(data, columns=["id", "tokens"]), BATCH, drop_last=False)
    model = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 16), torch.nn.Linear(16, TOKENS))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))  # not the loader
    steps = Steps()
    accelerator.register_for_checkpointing(loader, steps)
    if (checkpoint := latest(run)) is not None:
        accelerator.load_state(str(checkpoint))

    while loader.epoch < EPOCHS:
        for batch in loader:
            record(run, steps.done + 1, batch["id"])
            tokens = send_to_device(batch["tokens"], accelerator.device)
            logits = model(tokens[:, :-1]).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps.done += 1
            if steps.done % SAVE == 0:
                accelerator.save_state(f"{run}/step-{steps.done}")
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    publish(run, f"step-{steps.done}")

    valid = StreamingDataLoader(StreamingDataset(data, columns=["tokens"], shuffle=False), BATCH, drop_last=False)
    losses = list[float]()
    with torch.no_grad():
        for batch in valid:
            tokens = send_to_device(batch["tokens"], accelerator.device)
            logits = model(tokens[:, :-1]).transpose(1, 2)
            loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:], reduction="none")
            losses += loss.mean(1).tolist()  # of each sample
    losses = accelerator.gather_for_metrics(losses, use_gather_object=True)
    accelerator.print(f"loss {sum(losses) / len(losses):.3f}, the mean of {len(losses):,} samples")
    model, optimizer = accelerator.free_memory(model, optimizer)  # before its process group, see docs/trainers.md
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
