"""Build the documentation's site in build/site/html, strictly: a broken link, a missing name or a warning fails it."""

from typing import Any

RUN = "tools.site.run:run"
FAILS = "something leads nowhere, or was warned of"


def arguments(add: Any) -> None:
    text = "serve it on that port of this machine instead (default 8000), and follow changes of the pages until Ctrl-C"
    add("--pictures", action="store_true", help="take the pictures of docs/plan.md again, first")
    add("--serve", type=int, nargs="?", const=8000, metavar="PORT", help=text)
