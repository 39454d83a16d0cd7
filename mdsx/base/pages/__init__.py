"""Assets that the pages of mdsx share: charts, the colours of a light and a dark theme, and the switch between them.

uPlot draws the charts. Its licence (MIT) is beside it. Nothing here is loaded from another host.
"""

from __future__ import annotations

from importlib.resources import files

NAMES = ("chart.js", "theme.css", "theme.js", "uplot.css", "uplot.js")
"""What `asset` returns: `uplot.js` defines the global `uPlot`, `theme.js` the global `mdsxTheme`, and
`chart.js`, which needs both, the global `mdsxChart`."""


def asset(name: str) -> str:
    """Return the text of one of `NAMES`. Raise KeyError for any other name."""
    if name not in NAMES:
        raise KeyError(name)
    return files(__name__).joinpath("assets", name).read_text(encoding="utf-8")
