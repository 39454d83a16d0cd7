"""A small language model: it predicts a byte from the bytes before it, by their embeddings and one hidden layer.

Several models train side by side, each on the same samples in an order of its own: on a GPU they fill it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, relu

from tools.training.corpus import Corpus
from tools.training.setting import Setting

BYTES = 256
_EVALUATED = 512  # samples at a time


class Models:
    """`count` models with the same initial weights, drawn by `seed`."""

    def __init__(self, setting: Setting, count: int, seed: int, device: str) -> None:
        generator = torch.Generator().manual_seed(seed)
        inputs = setting.context * setting.embedding

        def drawn(*shape: int, scale: float) -> Tensor:
            one = torch.randn(shape, generator=generator) * scale
            return one.expand(count, *shape).clone().to(device).requires_grad_()

        self._context = setting.context
        self._bytes = drawn(BYTES, setting.embedding, scale=1.0)
        self._into = drawn(inputs, setting.hidden, scale=math.sqrt(2 / inputs))
        self._from = drawn(setting.hidden, BYTES, scale=math.sqrt(1 / setting.hidden))
        self._hidden = drawn(1, setting.hidden, scale=0.0)
        self._out = drawn(1, BYTES, scale=0.0)
        self._first = torch.arange(count, device=device)[:, None] * BYTES

    @property
    def weights(self) -> list[Tensor]:
        return [self._bytes, self._into, self._hidden, self._from, self._out]

    def losses(self, samples: Tensor) -> Tensor:
        """Return the mean loss of each model, float32 [count], on its samples: int64 [count, n, length]."""
        count = len(samples)
        windows = samples.unfold(2, self._context + 1, 1)  # [count, n, predictions, context + 1]
        contexts, wanted = windows[..., :-1].reshape(count, -1), windows[..., -1]
        table = self._bytes.reshape(-1, self._bytes.shape[-1])
        embedded = torch.nn.functional.embedding(contexts + self._first, table)
        embedded = embedded.reshape(count, -1, self._into.shape[1])
        hidden = relu(torch.baddbmm(self._hidden, embedded, self._into))
        scores = torch.baddbmm(self._out, hidden, self._from)
        each = cross_entropy(scores.reshape(-1, BYTES), wanted.reshape(-1), reduction="none")
        return each.reshape(count, -1).mean(dim=1)


def trained(setting: Setting, corpus: Corpus, orders: NDArray[np.int64], seed: int, device: str) -> list[float]:
    """Train a model on each of `orders`, int64 [count, samples], and return their losses in validation, in nats."""
    models = Models(setting, len(orders), seed, device)
    text = torch.from_numpy(corpus.training).to(device)
    taken = torch.from_numpy(orders).to(device)
    steps = orders.shape[1] // setting.batch
    optimizer = torch.optim.Adam(models.weights, lr=setting.rate, betas=(0.9, 0.98), fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = setting.rate * share_of_rate(step, steps, setting.warmup)
        batch = text[taken[:, step * setting.batch : (step + 1) * setting.batch]].long()
        optimizer.zero_grad()
        models.losses(batch).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return _validated(models, torch.from_numpy(corpus.validation).to(device), len(orders))


def share_of_rate(step: int, steps: int, warmup: float) -> float:
    """Return the share of the learning rate in a step: rising, then falling to 0 after the last."""
    rising = max(1, round(warmup * steps))
    return min((step + 1) / rising, (steps - step) / max(1, steps - rising))


def _validated(models: Models, text: Tensor, count: int) -> list[float]:
    total = torch.zeros(count, dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(text), _EVALUATED):
            part = text[start : start + _EVALUATED].long()
            total += models.losses(part.expand(count, *part.shape)).double().cpu() * len(part)
    return (total / len(text)).tolist()
