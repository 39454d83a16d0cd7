"""A small byte-level language model: predicts each byte of a text from those before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

LENGTH = 160  # bytes of context
PADDING = 0
_WIDTH = 96


class ByteModel(nn.Module):
    """Two transformer blocks over bytes, about 290,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, _WIDTH)
        self.places = nn.Embedding(LENGTH, _WIDTH)
        block = nn.TransformerEncoderLayer(
            _WIDTH, nhead=4, dim_feedforward=4 * _WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)
        self.guess = nn.Linear(_WIDTH, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, texts: Tensor) -> Tensor:
        """Mean loss in bits per byte of `texts` [n, LENGTH + 1], padding left out."""
        inputs, targets = texts[:, :-1].long(), texts[:, 1:].long()
        hidden = self.bytes(inputs) + self.places.weight
        guesses = self.guess(self.blocks(hidden, mask=self.mask, is_causal=True))
        losses = functional.cross_entropy(guesses.transpose(1, 2), targets, ignore_index=PADDING, reduction="sum")
        bits: Tensor = losses / (targets != PADDING).sum().clamp(min=1) / torch.log(torch.tensor(2.0))
        return bits
