"""Decoder: what `decode=` takes for a column."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray


@runtime_checkable
class Decoder(Protocol):
    """Decodes the values of a column of encoded bytes: `mdsx.Image`, `mdsx.Audio`, or an object of your own.

        class Raw:
            def gives(self, stored):
                return "uint8[64,64]"

            def decode(self, data, seed):
                return np.frombuffer(data, np.uint8).reshape(64, 64)

    A decoder is pickled for worker processes and called by several threads at once. All ranks must use the same one: if
    torch.distributed is initialised, they compare its `repr`, unless that is the default one of Python.
    """

    def gives(self, stored: str) -> str:
        """Return the type of the arrays, such as "uint8[224,224,3]", or "float32[*]" if their sizes differ.

        `stored` is the type of the column, such as "jpeg" or "bytes", without its question mark. Raise UsageError if
        the column cannot be decoded.
        """
        ...

    def decode(self, data: bytes | memoryview, seed: int) -> NDArray[Any]:
        """Return the array of a value that is not null.

        `seed` is the sample's own, 64 bits. It follows from the seed of the order, the epoch and the position. Any
        exception but MemoryError means that the value is damaged; mdsx raises a CorruptError that names the sample.
        """
        ...
