"""Build the wheel and the source distribution, and test both as a stranger gets them, in new environments."""

from typing import Any

RUN = "tools.package:run"
FAILS = "a test failed"


def arguments(add: Any) -> None:
    add("--out", metavar="DIR", help="put the wheel and the source distribution there (default: only test them)")
    add("--tag", default="", help="the tag of a release: fail if it is not that of the version")
    add("--all", action="store_true", help="also each extra alone, the oldest and newest dependencies, and the tests")
