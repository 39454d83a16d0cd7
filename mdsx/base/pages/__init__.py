"""Assets that all mdsx pages share: charts, a light and a dark theme, and the switch between them.

uPlot draws the charts; its licence (MIT) is beside it. Pages load nothing from other hosts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files

NAMES = ("chart.js", "theme.css", "theme.js", "uplot.css", "uplot.js")
"""What `asset` returns: `uplot.js` defines the global `uPlot`, `theme.js` the global `mdsxTheme`, and
`chart.js`, which needs both, the global `mdsxChart`."""


def asset(name: str) -> str:
    """Return the text of one of `NAMES`. Raise KeyError for any other name."""
    if name not in NAMES:
        raise KeyError(name)
    return own(__name__, name)


def own(package: str, name: str) -> str:
    """Return the text of a file in the folder `assets` of a package."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


def inline(tag: str, texts: Sequence[str]) -> str:
    """Return an element, `style` or `script`, for each text."""
    return "\n".join(f"<{tag}>{text}</{tag}>" for text in texts)


def policy(*, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """Return the content security policy of a page that loads nothing and runs only these inline styles and scripts."""
    parts = ["default-src 'none'"]
    parts += [f"script-src {' '.join(map(_hash, scripts))}"] if scripts else []
    parts += [f"style-src {' '.join(map(_hash, styles))}", "img-src data:", "base-uri 'none'", "form-action 'none'"]
    return "; ".join(parts)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return the template with each `%%NAME%%` replaced by its value, which is HTML."""
    pieces = template.split("%%")  # text, name, text, name, ..., text
    return "".join(values[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
