"""Run lint, types and tests."""

from typing import Any

RUN = "tools.check:run"
FAILS = "a step failed"


def arguments(add: Any) -> None:
    add("--all", action="store_true", help="also run slow tests, and those with Ray and Spark: an hour")
    text = "with --all: as root on Debian, install Chromium for the tests of pages, if there is none"
    add("--install-browser", action="store_true", help=text)
