"""Text to rows of tokens: a conversion whose samples are made by a tokenizer."""

from __future__ import annotations

from mdsx.transfer.tokenizing.tokenizing import Tokenization, TokenizationProgress, tokenize

__all__ = ["Tokenization", "TokenizationProgress", "tokenize"]
