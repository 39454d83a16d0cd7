"""The local web page of `mdsx view`: browse any dataset that mdsx opens.

`Library` opens the datasets and answers questions about them. `serve` returns the page's server, which needs starlette
and uvicorn (`pip install 'mdsx[view]'`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdsx.errors import UsageError
from mdsx.view.library import Library
from mdsx.view.source import Opening
from mdsx.view.tokens import Tokenizer

if TYPE_CHECKING:
    from mdsx.view.server import Server

__all__ = ["Library", "Opening", "Tokenizer", "check_installed", "serve"]


def serve(library: Library, port: int = 0) -> Server:
    """Return a server of the page on `port`; 0 is any free one. Raise UsageError if packages are missing."""
    check_installed()
    from mdsx.view.server import Server

    return Server(library, port)


def check_installed() -> None:
    """Raise UsageError if the packages that the server needs are not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        message = f"`mdsx view` needs the packages starlette and uvicorn ({error})"
        raise UsageError(message, hint="pip install 'mdsx[view]'") from None
