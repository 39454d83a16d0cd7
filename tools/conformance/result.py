"""What the matrix finds in a cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """What a cell found. `status`: exact, inexact, order, unsupported, hang, error or missing (not installed).

    `exact`: nothing lost or repeated, and the global batches as expected, where something says what those are
    (`order` is None where nothing does).
    """

    loader: str
    cell: str
    status: str
    lost: int = 0
    repeated: int = 0
    order: bool | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """As a table has it."""
        if self.status == "inexact":
            counts = [(self.lost, "lost"), (self.repeated, "repeated")]
            return ", ".join(f"{word} {count}" for count, word in counts if count)
        words = {"exact": "ok", "order": "order differs", "missing": "not installed"}
        return words.get(self.status, self.status)
