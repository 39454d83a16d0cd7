"""What the pretraining examples share: a corpus of three sources, a plan of the run, and a small GPT.

python examples/pretraining.py write DATA       # texts as bytes, in DATA/web, DATA/code and DATA/math
python examples/pretraining.py check DATA RUN   # after a run: has each step the documents that the plan says?
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from data import steps as recorded
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

SOURCES = {"web": 1200, "code": 500, "math": 400}  # documents
VERBS = {"web": "reads", "code": "calls", "math": "adds"}
END, TOKENS = 256, 257  # the token after each document; tokens in all
ROW, LONG = 64, 128  # values of a row
LONGER, ANNEAL, STOP = mdsx.Tokens("24K"), mdsx.Tokens("56K"), mdsx.Tokens("160K")

Kind = Literal["concat", "pack"]


def write(url: str) -> None:
    """Write the corpus. The documents of all sources have different ids."""
    random = np.random.default_rng(0)
    columns = {"id": "int64", "tokens": "uint16[*]"}
    for name, documents in SOURCES.items():
        with mdsx.Writer(f"{url}/{name}", columns, shard_size="8kB", lengths=["tokens"]) as out:
            for number in range(documents):
                digits = random.integers(10, size=random.integers(1, 5))
                text = f"{name} {number}: {' '.join(f'it {VERBS[name]} {digit}' for digit in digits)}"
                out.write({"id": first_id(name) + number, "tokens": np.frombuffer(text.encode(), np.uint8)})


def first_id(name: str) -> int:
    return 10_000 * list(SOURCES).index(name)


def dataset(url: str, **more: Any) -> StreamingDataset:
    """Return the corpus as one stream. A real run has 64 lanes or more."""
    mixture = mdsx.Mixture({name: f"{url}/{name}" for name in SOURCES})
    return StreamingDataset(mixture, seed=7, shuffle=mdsx.Shuffle(lanes=4), **more)


def plan(kind: Kind = "concat", *, steady: bool = False, **packing: Any) -> mdsx.Plan:
    """Return the plan of a run: larger steps, then longer rows, and other sources in about the last 200 steps.

    `steady`: with one size of steps and rows, for trainers that know no others. `packing`: more arguments of Pack.
    """

    def rows(length: int) -> mdsx.Pack:
        # window=16 lets phases of this small run begin soon; a real run leaves it out
        more = {"window": 16, "labels": True, "end": END, "dtypes": {"tokens": "int64"}, **packing}
        return mdsx.Pack(length, length="tokens", kind=kind, **more)

    text, mixed = {"web": 0.75, "code": 0.25}, {"web": 0.3, "code": 0.2, "math": 0.5}
    if steady:
        phases = {0: mdsx.Phase(text, batching=rows(ROW), global_batch_size=8, micro_batch=2)}
    else:
        phases = {
            0: mdsx.Phase(text, batching=rows(ROW), global_batch_size=4, micro_batch=2),
            mdsx.Tokens("8K"): mdsx.Phase(global_batch_size=8),
            LONGER: mdsx.Phase(batching=rows(LONG), global_batch_size=4),
        }
    return mdsx.Plan({**phases, ANNEAL: mdsx.Phase(mixed)}, proportions_of="tokens")


def steps(loader: StreamingDataLoader) -> Iterator[list[dict[str, Any]]]:
    """Yield the steps of a run, each as the micro-batches of this rank. The loader's state is that after the step."""
    parts = []
    while True:
        for batch in loader:
            parts.append(batch)
            if loader.step_complete:
                yield parts
                parts = []


def ids(parts: list[dict[str, Any]]) -> list[int]:
    """Return the id of each document, or piece of one, in packed rows."""
    return [number for part in parts for row in part["id"] for number in row]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, values: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.attention(self.before(values)).chunk(3, dim=-1)
        )
        attend = flex if values.is_cuda else sdpa
        values = values + self.joined(attend(query, key, value, segments).transpose(1, 2).flatten(2))
        return values + self.mlp(self.between(values))


class GPT(nn.Module):
    """A GPT for packed rows [rows, L] and for flat batches [T]: a token sees those before it in its own document.

    Positions begin at 0 in each document, or piece of one.
    """

    def __init__(self, width: int = 32, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(TOKENS, width), nn.Embedding(LONG, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.output = nn.Linear(width, TOKENS)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        segments = (positions == 0).cumsum(-1)
        values = self.token(tokens) + self.position(positions)
        flat = values.dim() == 2
        values, segments = (values[None], segments[None]) if flat else (values, segments)
        for block in self.blocks:
            values = block(values, segments)
        logits: torch.Tensor = self.output(values[0] if flat else values)
        return logits


def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """Attend inside of documents, with a mask [rows, L, L]."""
    same = (segments[:, :, None] == segments[:, None, :]).tril()
    return scaled_dot_product_attention(query, key, value, attn_mask=same[:, None])


def flex(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """Do the same without a mask in memory. A real model makes the block mask once for all layers, and compiles."""

    def seen(row: Any, head: Any, query: Any, key: Any) -> Any:  # noqa: ARG001  flex_attention gives it
        return (segments[row, query] == segments[row, key]) & (query >= key)

    rows, length = segments.shape
    mask = create_block_mask(seen, rows, None, length, length, device=segments.device)
    found: Any = flex_attention(query, key, value, block_mask=mask)
    return found


def loss_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the summed loss of all tokens that have a label."""
    return cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100, reduction="sum")


def expected(url: str, planned: mdsx.Plan, count: int) -> list[list[int]]:
    """Return the ids that the first steps of a run have, from the order and the lengths alone."""
    loader = StreamingDataLoader(dataset(url, rank=0, world_size=1), plan=planned, epoch_steps=100)
    found: list[list[int]] = [[] for _ in range(count)]
    for item in loader.trace(0, count):
        found[item.step].append(first_id(item.component) + item.sample)
    return [sorted(step) for step in found]


def check(url: str, run: str, planned: mdsx.Plan) -> int:
    """Return how many steps a run had. Raise ValueError if one has not the documents that the plan says."""
    found = [sorted(step.numbers) for step in recorded(run).values()]
    if found != expected(url, planned, len(found)):
        raise ValueError("the steps are not those of the plan")
    return len(found)


def main(command: str, data: str, run: str = "", kind: Kind = "concat") -> None:
    if command == "write":
        write(data)
    else:
        print(f"{check(data, run, plan(kind))} steps, each with the documents of the plan")


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
