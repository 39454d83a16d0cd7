"""Tokenize text: a conversion in which a tokenizer makes the samples."""

from __future__ import annotations

from mdsx.transfer.tokenizing.tokenizing import Tokenization, TokenizationProgress, tokenize

__all__ = ["Tokenization", "TokenizationProgress", "tokenize"]
