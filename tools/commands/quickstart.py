"""Train from a cloud, kill the training, resume it, and check that each sample was read exactly once: a minute."""

from typing import Any

RUN = "tools.quickstart.command:run"
FAILS = "a promise was broken"


def arguments(add: Any) -> None:
    add("--documents", type=int, metavar="N", default=1600, help="use N documents (default 1600)")
    add("--storage", choices=["s3", "gs", "az"], default="s3", help="the kind of the local server (default s3)")
