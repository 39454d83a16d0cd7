"""A report as one HTML page, with charts that respond to mouse, touch and keyboard.

The page is self-contained, and its policy lets it load nothing: scripts and styles are allowed only by their hashes.
The report is embedded as JSON, which scripts show as text, never as HTML.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

from mdsx.base import pages
from mdsx.simulate.report import Report
from mdsx.simulate.shown import shown

_STYLES = ("page.css",)
_SHARED = ("theme.js", "uplot.js", "chart.js")
_SCRIPTS = ("dom.js", "charts.js", "curve.js", "page.js")
_own = partial(pages.own, "mdsx.simulate")


def page(report: Report) -> str:
    """Return the page of a report. The same report gives the same page."""
    styles = [pages.asset("theme.css"), pages.asset("uplot.css"), *map(_own, _STYLES)]
    scripts = [*map(pages.asset, _SHARED), *map(_own, _SCRIPTS)]
    values = {
        "POLICY": pages.policy(styles=styles, scripts=scripts),
        "STYLES": pages.inline("style", styles),
        "DATA": _json({"report": report.plain(), "shown": shown(report)}),
        "SCRIPTS": pages.inline("script", scripts),
    }
    return pages.filled(_own("page.html"), values)


def _json(value: object) -> str:
    """Return JSON that is safe in a <script>: no `<` can end the element or begin a comment."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    """Return `value` with None in place of infinities and NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
