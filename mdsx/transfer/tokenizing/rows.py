"""Cut the tokens of successive documents into rows of one length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class RowCutter:
    """Takes tokens, and returns rows of `length` tokens. Remaining tokens begin the next row."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._rest: list[NDArray[Any]] = []
        self.left = 0
        """How many tokens are left."""

    def cut(self, tokens: NDArray[Any]) -> NDArray[Any] | None:
        """Return the next rows, an array [n, length]; None if no row is complete."""
        self._rest.append(tokens)
        self.left += len(tokens)
        if self.left < self._length:
            return None
        whole = np.concatenate(self._rest)
        stop = len(whole) - len(whole) % self._length
        self._rest, self.left = [whole[stop:].copy()], len(whole) - stop
        return whole[:stop].reshape(-1, self._length)
