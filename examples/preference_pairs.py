"""Direct preference optimization: the chosen and the rejected answer of a sample are in the same batch.

python examples/preference_pairs.py write DATA
torchrun --nproc-per-node 2 examples/preference_pairs.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/preference_pairs.py DATA RUN  # it continues, on any number of ranks
python examples/data.py count RUN
"""

import copy
import gc
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from data import EPOCHS, SAMPLES, latest, publish, record
from torch.nn.functional import logsigmoid

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

TOKENS, WIDTH, PROMPT, BETA = 32, 32, 4, 0.5
CAPACITY, SAVE = 512, 5  # tokens of one kind in a rank's batch; steps between checkpoints
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def write(url: str) -> None:
    """Write the dataset. Both answers follow the prompt; chosen ones ascend, rejected ones descend."""
    random = np.random.default_rng(0)
    columns = {"id": "int64", "chosen": "int64[*]", "rejected": "int64[*]"}
    with mdsx.Writer(url, columns, shard_size="16kB", lengths=["chosen", "rejected"]) as out:
        for number in range(SAMPLES):
            prompt, sample = random.integers(TOKENS, size=PROMPT), {"id": number}
            for name, step in (("chosen", 1), ("rejected", -1)):
                answer = (prompt[-1] + step * np.arange(1, random.integers(4, 40))) % TOKENS
                sample[name] = np.concatenate((prompt, answer))
            out.write(sample)


def batches(url: str, **ranks: Any) -> StreamingDataLoader:
    """Return the loader. The longer answer counts as a sample's length: both fit, each padded to its own longest."""
    batching = mdsx.MaxTokens(CAPACITY, length=["chosen", "rejected"])
    dataset = StreamingDataset(url, seed=7, **ranks)
    return StreamingDataLoader(dataset, batching=batching, device=DEVICE, drop_last=False)


class Model(torch.nn.Module):
    """The next token from the one before it: as much as these answers need."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(TOKENS, WIDTH)
        self.read, self.head = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each answer after its prompt, [n]."""
        logits = self.head(self.read(self.embed(tokens[:, :-1])).relu())
        found = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        places = torch.arange(tokens.shape[1], device=tokens.device)[1:]
        return (found * ((places >= PROMPT) & (places < lengths[:, None]))).sum(-1)


def main(data: str, run: str) -> None:
    dist.init_process_group()
    if DEVICE == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    loader = batches(data)
    torch.manual_seed(0)
    model = Model().to(DEVICE)  # the same on every rank
    reference = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
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
            margin = torch.zeros(len(batch["id"]), device=DEVICE)
            for name, sign in (("chosen", 1), ("rejected", -1)):
                pair = batch[name], batch["lengths"][name]
                margin = margin + sign * (model(*pair) - reference(*pair))
            loss = -logsigmoid(BETA * margin).sum() / batch["global_samples"]
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # the sum: DDP takes the mean, so there, use loss * ranks
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total := loss.detach())
            record(run, steps, batch["id"], total.item())
            if steps % SAVE == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{steps}.pt")
                publish(run, f"step-{steps}.pt")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        main(*sys.argv[1:])
        gc.collect()  # the model ends before its process group, see docs/trainers.md
        dist.destroy_process_group()
