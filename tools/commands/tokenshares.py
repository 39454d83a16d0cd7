"""Show how exact shares of tokens are. Exit status 1 if one exceeds its bound."""

from typing import Any

RUN = "tools.token_shares:run"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the table of docs/mixtures.md")
