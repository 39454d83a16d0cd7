"""Show how exact shares of tokens are, over 10^9 tokens and without data. Exit status 1 if one is beyond its bound."""

from typing import Any

RUN = "tools.token_shares:run"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the table of docs/training.md")
