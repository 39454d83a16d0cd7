"""Write a picture of a chart as SVG."""

from __future__ import annotations

from collections.abc import Iterable


def picture(width: int, height: int, drawn: Iterable[str]) -> str:
    """Return the SVG with these elements on white, in pixels."""
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13"'
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([f"<svg {head}>", ground, *drawn, "</svg>", ""])
