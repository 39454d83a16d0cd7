"""Cut a stream of bytes into lines, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

LONGEST_LINE = 2**26
_PIECE = 2**20


class Lines(NamedTuple):
    """Consecutive lines, from byte `offset` of the stream on, without the newlines that end them.

    `before`: how many lines precede them. `texts` is None for one line that is too long.
    """

    offset: int
    before: int
    texts: list[bytes] | None


def cut_lines(
    chunks: Iterable[bytes], tail: Iterable[bytes] = (), *, offset: int = 0, inside: bool = False
) -> Iterator[Lines]:
    """Yield all lines that begin in `chunks`, about 1 MiB at a time.

    The last line may continue in `tail`, which is read only up to its end. `offset` is the first byte's. `inside`: the
    first byte belongs to a line that began before, and is left out. Memory is bounded by `LONGEST_LINE`.
    """
    rest, before = b"", 0
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE):
            piece = chunk[start : start + _PIECE]
            if inside:
                begin = piece.find(b"\n") + 1
                offset += begin or len(piece)
                if not begin:
                    continue
                piece, inside = piece[begin:], False
            end, texts = offset + len(rest) + len(piece), piece.split(b"\n")
            texts[0] = rest + texts[0]
            rest = texts.pop()
            if texts:
                yield Lines(offset, before, texts)
                offset, before = end - len(rest), before + len(texts)
            if len(rest) > LONGEST_LINE:
                yield Lines(offset, before, None)
                offset, before, rest, inside = offset + len(rest), before + 1, b"", True
    if not rest:
        return
    for piece in tail:
        more, newline, _ = piece.partition(b"\n")
        rest += more
        if newline or len(rest) > LONGEST_LINE:
            break
    yield Lines(offset, before, None if len(rest) > LONGEST_LINE else [rest])
