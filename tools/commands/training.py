"""Train small language models on shuffled text: what loss mdsx's order costs, and what others' do."""

from pathlib import Path
from typing import Any

RUN = "tools.training.run:run"
FAILS = "the control, no shuffle, does not lose, or the default of mdsx may lose more than the goal"


def arguments(add: Any) -> None:
    add("--minutes", type=float, default=30, metavar="N", help="start no pair that would end later (default 30)")
    add("--jobs", type=int, metavar="N", help="pairs at a time (default: one for each core; on a GPU 1)")
    add("--device", default="cpu", help="the device (default cpu), such as cuda")
    add("--set", nargs="+", default=[], metavar="NAME=VALUE", help="another model or data, such as batch=256")
    add("--json", type=Path, metavar="FILE", help="keep finished pairs in this file, and add to those in it")
    add("--text", type=Path, metavar="FILE", help="keep the text in this file; if it exists, train on the text in it")
    add("--docs", action="store_true", help="write the table and the chart of docs/shuffling.md")
