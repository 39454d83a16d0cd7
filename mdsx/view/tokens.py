"""Show rows of tokens as text, with a `tokenizer.json` of Hugging Face."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import MissingError, UnsupportedError, UsageError

MOST = 4000
"""Tokens of a row that are decoded."""


class Tokenizer:
    """The tokenizer of one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read `path`. Raise UsageError without the package tokenizers, MissingError if the file does not exist,
        UnsupportedError if it is not a tokenizer."""
        file = os.fspath(path)
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            message = "--tokenizer needs the package tokenizers"
            raise UsageError(message, hint="pip install 'mdsx[view]' tokenizers") from None
        if not os.path.isfile(file):
            raise MissingError("there is no such tokenizer", file=file)
        try:
            self._loaded: Any = Loaded.from_file(file)
        except Exception as error:  # the package raises plain Exceptions
            hint = "give a tokenizer.json, as `tokenizer.save_pretrained()` writes it"
            raise UnsupportedError(f"the file is not a tokenizer: {error}", file=file, hint=hint) from None
        self.name = file
        numbers = self._loaded.get_vocab(with_added_tokens=True).values()  # maybe with gaps
        self._size: int = max(numbers, default=-1) + 1

    def decode(self, array: NDArray[Any]) -> dict[str, Any] | None:
        """Return {"text": all, "pieces": text of each token, "ids": the tokens, "n": the row's number of tokens}, for
        the first `MOST` tokens; None for an array that is not a row of tokens."""
        if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size:
            return None
        if int(array.min()) < 0 or int(array.max()) >= self._size:
            return None
        ids = array[:MOST].astype(np.int64).tolist()
        pieces = self._loaded.decode_batch([[token] for token in ids], skip_special_tokens=False)
        text = self._loaded.decode(ids, skip_special_tokens=False)
        return {"text": text, "pieces": pieces, "ids": ids, "n": int(array.size)}
