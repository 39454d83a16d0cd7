"""A small language model on packed rows: documents of any length, several to a row of 64 tokens.

On the same number of ranks, a resumed run has the same losses to the last bit; on another number, the same samples in
the same steps, and losses that differ in their last digits, because sums are rounded in another order.

    python examples/data.py write DATA
    torchrun --nproc-per-node 2 examples/packed_language_model.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 2 examples/packed_language_model.py DATA RUN  # the same losses; or on another number
    python examples/data.py count RUN
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
from data import CAPACITY, EPOCHS, TOKENS, latest, publish, record
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

ROWS, SAVE = 12, 5  # rows of a step over all ranks; steps between checkpoints


class Model(torch.nn.Module):
    """One layer of attention, in which a token sees those before it in its own document."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.token = torch.nn.Embedding(TOKENS, width)
        self.position = torch.nn.Embedding(CAPACITY, width)
        self.attention = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, TOKENS)

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        segments = batch["segment_ids"]
        seen = (segments[:, :, None] == segments[:, None, :]).tril()
        values = self.token(batch["document"]) + self.position(batch["position_ids"].long())
        query, key, value = self.attention(values).chunk(3, dim=-1)
        values = values + scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.output(values)


def loss_sum(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """Return the summed loss of each token's successor in the same document."""
    document, segments = batch["document"], batch["segment_ids"]
    last = segments[:, :-1] != segments[:, 1:]
    labels = document[:, 1:].masked_fill(last | (segments[:, 1:] == 0), -100)
    return cross_entropy(model(batch)[:, :-1].transpose(1, 2), labels, reduction="sum")


def main(data: str, run: str) -> None:
    dist.init_process_group()
    ranks = dist.get_world_size()
    loader = StreamingDataLoader(
        StreamingDataset(data, columns=["id", "document"]),
        ROWS // ranks,
        batching=mdsx.Pack(CAPACITY, length="document"),
        drop_last=False,
    )
    torch.manual_seed(0)
    model = Model()  # the same on every rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = 0
    if (checkpoint := latest(run)) is not None:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        steps = saved["steps"]

    while loader.epoch < EPOCHS:
        for batch in loader:
            steps += 1
            loss = loss_sum(model, batch) / batch["global_tokens"]  # of the step, over all ranks
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # the sum: DDP takes the mean, so there, use loss * ranks
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total := loss.detach())
            record(run, steps, (number for row in batch["id"] for number in row), total.item())
            if steps % SAVE == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{steps}.pt")
                publish(run, f"step-{steps}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
