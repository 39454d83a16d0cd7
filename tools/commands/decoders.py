"""Compare decoders of pictures: how many a second on one core, and how far their pixels are from Pillow's."""

from typing import Any

RUN = "tools.decoders:run"
FAILS = "the pixels of a backend of mdsx.Image are further from Pillow's than docs/images.md says"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the tables of docs/images.md")
