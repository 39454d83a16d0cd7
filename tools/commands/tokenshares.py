"""Show how exact shares of tokens are."""

from typing import Any

RUN = "tools.token_shares:run"
FAILS = "a share is off by more than its bound"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the table of docs/mixtures.md")
